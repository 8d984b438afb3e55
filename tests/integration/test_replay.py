"""Public reports of faults of other projects, replayed as scripts on a source, beside a native replica."""

import pytest

from millrace.schemas.gtid import Flavour
from tests.fixtures.servers import FLAVOURS, Pool
from tests.kit.replay import Report, Stage, reports

pytestmark = pytest.mark.both_flavours

QUICK = {"float_bits", "json_typed_values"}


def _each() -> list[object]:
    return [
        pytest.param(
            flavour,
            report,
            id=f"{report.name}-{flavour}",
            marks=() if report.name in QUICK else pytest.mark.chaos,
        )
        for flavour in FLAVOURS
        for report in reports(flavour)
    ]


@pytest.mark.parametrize(("flavour", "report"), _each())
def test_reported_script_leaves_what_a_native_replica_has(
    pool: Pool, flavour: Flavour, report: Report
) -> None:
    """Definitions and rows are those of the source; or Millrace stops with the code that the script names.

    A script names a native replica that is not right either, so that no excuse outlives its reason.
    """
    stage = Stage(pool.source_set(flavour), pool.server(flavour, 101 + FLAVOURS.index(flavour)))
    outcome = stage.play(report)
    assert bool(outcome.replica) == report.is_beyond_a_replica(flavour), outcome.replica
    assert outcome.code == report.code(flavour), outcome.error
    if not outcome.error:
        assert outcome.target == []
