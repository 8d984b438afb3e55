"""When a side stream may give its tables to main."""

from dataclasses import replace

from millrace.consumer.backfill import join
from millrace.consumer.target.loads import LoadStream
from millrace.consumer.target.progress import Mark
from millrace.schemas.gtid import Flavour

MARK = Mark(9, 20, "0-1-7", "mariadb")
OVER = LoadStream("0-1-3", "0-1-7", Flavour.MARIADB)


def test_streams_join_at_one_mark() -> None:
    """With records that only one of them has applied, some would be lost or applied twice."""
    assert join.can_join(MARK, MARK, None)
    assert join.can_join(replace(MARK, gtid_set="0-1-9"), MARK, OVER)
    assert not join.can_join(replace(MARK, next_offset=21), MARK, None)
    assert not join.can_join(replace(MARK, seq=10), MARK, None)


def test_side_stream_does_not_join_before_its_range_is_over() -> None:
    """Main would not repeat the rows that the copies may have, nor skip those before the start."""
    assert not join.can_join(MARK, MARK, LoadStream("0-1-3", "0-1-8", Flavour.MARIADB))
    assert not join.can_join(MARK, replace(MARK, past_start=False), None)
