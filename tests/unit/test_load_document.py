"""`start: load` and `load` in a task document."""

import pytest

from millrace.errors import Fatal
from millrace.schemas.documents import (
    ApplyTask,
    LoadRules,
    Start,
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
start: first
"""
CAPTURE = """
task: shop-capture
kind: capture
set: shop
kafka: {bootstrap: "127.0.0.1:9092"}
registry: http://127.0.0.1:8081/
start: 0-1-5
"""


def _problems(text: str) -> str:
    with pytest.raises(Fatal) as caught:
        parse_task(plain_from_yaml(text))
    assert caught.value.code == "MR-4101"
    return caught.value.message


def test_apply_task_may_start_with_a_load() -> None:
    """Only an apply task; its rules are optional and written only if they are not the defaults."""
    task = parse_task(plain_from_yaml(APPLY.replace("start: first", "start: load")))
    assert isinstance(task, ApplyTask)
    assert task.start == Start(is_load=True)
    assert not task.start.is_first
    assert task.rules.load == LoadRules()
    assert plain_task(task)["start"] == "load"
    assert "load" not in plain_task(task)
    text = APPLY + "\nload: {parallel: 8, chunk_rows: 5000, max_lag_s: 5, from_primary: true}\n"
    told = parse_task(plain_from_yaml(text))
    assert isinstance(told, ApplyTask)
    rules = LoadRules(parallel=8, chunk_rows=5000, max_lag_s=5.0, from_primary=True)
    assert told.rules.load == rules
    assert parse_task(plain_task(told)) == told
    wrong = _problems(APPLY + "\nload: {parallel: 0, from_primary: 1, max_lag: 3}\n")
    for problem in (
        "load.parallel: found 0, wanted a whole number from 1 to 64",
        "load.from_primary: found 1, wanted true | false",
        "load.max_lag: found an unknown field, wanted 'max_lag_s' (nearest)",
    ):
        assert problem in wrong
    assert "start: found 'load', wanted first, or a GTID set" in _problems(
        CAPTURE.replace("start: 0-1-5", "start: load")
    )
