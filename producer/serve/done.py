"""The transactions that a client has, as rows for ``producer.binlog.framing``."""

from uuid import UUID

import numpy as np

from producer.binlog.compiled import Words
from producer.binlog.framing import DONE_WORDS
from producer.binlog.gtid_events import NUMBER, TAG, TAG_BYTES_MAX
from schemas.gtid import GtidPosition, GtidSet, MariadbGtid, MariadbGtidSet


def done_rows(done: GtidPosition, before: GtidPosition) -> Words:
    """One row for each range of ``done`` that a file may hold that begins after ``before``."""
    if isinstance(done, GtidSet):
        assert isinstance(before, GtidSet)
        ranges = list((done - before).intervals())
        rows = np.zeros((len(ranges), DONE_WORDS), np.int64)
        for row, ((uuid, tag), bounds) in zip(rows, ranges, strict=True):
            row[:TAG] = _words(uuid)
            padded = tag.encode().ljust(TAG_BYTES_MAX, b"\0")
            row[TAG:NUMBER] = np.frombuffer(padded, "<i8")
            row[NUMBER:] = bounds
        return rows
    assert isinstance(done, MariadbGtidSet)
    assert isinstance(before, MariadbGtidSet)
    open_domains = [gtid for gtid in done.gtids() if not _is_passed(gtid, before)]
    rows = np.zeros((len(open_domains), DONE_WORDS), np.int64)
    for row, gtid in zip(rows, open_domains, strict=True):
        row[:TAG] = gtid.domain, gtid.server
        row[NUMBER] = np.uint64(gtid.sequence).astype(np.int64)
    return rows


def _is_passed(gtid: MariadbGtid, before: MariadbGtidSet) -> bool:
    """Whether a file after ``before`` begins after this GTID. The files before it were checked when they were sent."""
    last = before.last(gtid.domain)
    return last is not None and (last.sequence > gtid.sequence or last == gtid)


def no_rows() -> Words:
    """For a client that gets everything."""
    return np.zeros((0, DONE_WORDS), np.int64)


def _words(uuid: UUID) -> "Words":
    return np.frombuffer(uuid.bytes, "<i8")
