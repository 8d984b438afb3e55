"""`compare` in a task document."""

import pytest

from millrace.errors import Fatal
from millrace.schemas.documents import (
    ApplyTask,
    CompareRules,
    StructureRule,
    parse_task,
    plain_from_yaml,
    plain_task,
)

APPLY = """
task: shop-to-warehouse
kind: apply
topic: shop
kafka: {bootstrap: "127.0.0.1:9092"}
target: warehouse
"""


def _rules(compare: str) -> CompareRules:
    task = parse_task(plain_from_yaml(APPLY + compare))
    assert isinstance(task, ApplyTask)
    assert parse_task(plain_task(task)) == task
    return task.rules.compare


def test_compare_names_its_interval_and_its_limits() -> None:
    """Without it nothing is compared, and the stored document does not have it."""
    assert _rules("") == CompareRules()
    assert "compare" not in plain_task(parse_task(plain_from_yaml(APPLY)))
    assert _rules("compare: {every_h: 24}") == CompareRules(every_h=24)
    every_field = "compare: {every_h: 6, repair: true, max_lag_s: 5, max_threads_running: 9}"
    assert _rules(every_field) == CompareRules(
        every_h=6, repair=True, max_lag_s=5.0, max_threads_running=9
    )
    failing = CompareRules(every_h=6, structure=StructureRule.FAIL)
    assert _rules("compare: {every_h: 6, structure: fail}") == failing


def test_default_structure_is_not_stored() -> None:
    """A worker of an earlier version reads the document, too."""
    task = parse_task(plain_from_yaml(APPLY + "compare: {every_h: 6, structure: report}"))
    assert "structure" not in str(plain_task(task))


@pytest.mark.parametrize(
    ("compare", "problem"),
    [
        ("{repair: true}", "compare.every_h: found nothing, wanted a whole number from 1 to 8784"),
        ("{every_h: 0}", "compare.every_h: found 0, wanted a whole number from 1 to 8784"),
        ("{every_h: 1.5}", "compare.every_h: found 1.5, wanted a whole number from 1 to 8784"),
        (
            "{every_h: 1, structure: warn}",
            "compare.structure: found 'warn', wanted report | fail | ignore",
        ),
        ("{every_h: 1, repair: 1}", "compare.repair: found 1, wanted true | false"),
        (
            "{every_h: 1, max_lag: 3}",
            "compare.max_lag: found an unknown field, wanted 'max_lag_s' (nearest)",
        ),
        ("daily", "compare: found 'daily', wanted a mapping: {every_h: 24, repair: false}"),
    ],
)
def test_wrong_compare_is_refused_with_the_wanted_value(compare: str, problem: str) -> None:
    """As each other field."""
    with pytest.raises(Fatal) as caught:
        parse_task(plain_from_yaml(APPLY + f"compare: {compare}"))
    assert caught.value.code == "MR-4101"
    assert problem in caught.value.message
