"""Converts between the kernel's position and a ``GtidPosition``.

The kernel updates rows of numbers; Python reads only the rows that changed with a batch. MySQL's intervals can be
fragmented after transactions that came out of order. If there are many fragments, they are rebuilt from the exact set.
"""

from uuid import UUID

import numpy as np

from millrace.producer.binlog.gtid_events import TAG_BYTES_MAX
from millrace.producer.convert.arrays import Bytes, KernelArrays, grown
from millrace.producer.convert.kernel import state as s
from millrace.schemas.gtid import Flavour, GtidPosition
from millrace.schemas.gtid.mariadb import MariadbGtid, MariadbGtidSet
from millrace.schemas.gtid.mysql import GtidSet

_FRAGMENTS_MAX = 64  # fragments more than the set itself has


def load_position(arrays: KernelArrays, position: GtidPosition) -> None:
    """Write the kernel's rows for `position`. It forgets all else, except MariaDB's order within a sub-directory."""
    if isinstance(position, MariadbGtidSet):
        _load_domains(arrays, position)
    elif isinstance(position, GtidSet):
        _load_intervals(arrays, position)


def read_position(arrays: KernelArrays, before: GtidPosition) -> GtidPosition:
    """`before` and all transactions that the kernel added since the last call."""
    st, rows = arrays.state, arrays.intervals
    changed = np.flatnonzero(rows[: st[s.INTERVAL_COUNT], s.I_CHANGED])
    if not changed.size:
        return before
    rows[changed, s.I_CHANGED] = 0
    if isinstance(before, MariadbGtidSet):
        last = {gtid.domain: gtid for gtid in before.gtids()}
        for domain, server, sequence in rows[changed, :3].tolist():
            last[domain] = MariadbGtid(domain, server, sequence)
        return MariadbGtidSet.of(last.values())
    assert isinstance(before, GtidSet)
    added = [
        (_source(arrays.sids, sid), (first, end)) for sid, first, end in rows[changed, :3].tolist()
    ]
    after = GtidSet.of_intervals([*before.intervals(), *added])
    if st[s.INTERVAL_COUNT] > _FRAGMENTS_MAX + 2 * sum(1 for _ in after.intervals()):
        _load_intervals(arrays, after)
    return after


def make_room(arrays: KernelArrays) -> None:
    """Double the room for rows and UUIDs, after POSITION_FULL."""
    arrays.intervals = grown(arrays.intervals, len(arrays.intervals) + 1)
    arrays.sids = grown(arrays.sids, arrays.sids.size + 1)


def forget_order(arrays: KernelArrays) -> None:
    """Forget the order of MariaDB's transactions: another sub-directory may begin with earlier ones."""
    if arrays.state[s.FLAVOUR] == s.MARIADB:
        arrays.intervals[:, s.I_SEEN] = 0


def flavour_number(flavour: Flavour) -> int:
    """The kernel's number of a flavour: MYSQL or MARIADB."""
    return s.MARIADB if flavour is Flavour.MARIADB else s.MYSQL


def _load_domains(arrays: KernelArrays, position: MariadbGtidSet) -> None:
    seen = {int(row[s.I_DOMAIN]): int(row[s.I_SEEN]) for row in arrays.intervals}
    gtids = position.gtids()
    arrays.intervals = grown(arrays.intervals, 2 * len(gtids) + 1)
    arrays.intervals[:] = 0
    for index, gtid in enumerate(gtids):
        row = arrays.intervals[index]
        row[s.I_DOMAIN], row[s.I_SERVER], row[s.I_SEQUENCE] = (
            gtid.domain,
            gtid.server,
            gtid.sequence,
        )
        row[s.I_SEEN] = seen.get(gtid.domain, 0)
    arrays.state[s.INTERVAL_COUNT] = len(gtids)


def _load_intervals(arrays: KernelArrays, position: GtidSet) -> None:
    st = arrays.state
    found = list(position.intervals())
    arrays.intervals = grown(arrays.intervals, 2 * len(found) + 2 * _FRAGMENTS_MAX)
    arrays.intervals[:] = 0
    sids: dict[tuple[UUID, str], int] = {}
    for sid in range(int(st[s.SID_COUNT])):
        sids[_source(arrays.sids, sid)] = sid
    for index, (source, (first, end)) in enumerate(found):
        if source not in sids:
            sids[source] = _add_sid(arrays, source)
        arrays.intervals[index, :3] = sids[source], first, end
    st[s.INTERVAL_COUNT] = len(found)
    st[s.INTERVAL_HINT] = 0


def _source(sids: Bytes, sid: int) -> tuple[UUID, str]:
    entry = sids[sid * s.SID_STRIDE : (sid + 1) * s.SID_STRIDE].tobytes()
    tag = entry[s.SID_TAG : s.SID_TAG + TAG_BYTES_MAX].rstrip(b"\0").decode("ascii")
    return UUID(bytes=entry[:16]), tag


def _add_sid(arrays: KernelArrays, source: tuple[UUID, str]) -> int:
    uuid, tag = source
    sid = int(arrays.state[s.SID_COUNT])
    arrays.sids = grown(arrays.sids, (sid + 1) * s.SID_STRIDE)
    text = f"{uuid}:{tag}:" if tag else f"{uuid}:"
    entry = bytearray(s.SID_STRIDE)
    entry[:16] = uuid.bytes
    entry[s.SID_TAG : s.SID_TAG + len(tag)] = tag.encode()
    entry[s.SID_TEXT] = len(text)
    entry[s.SID_TEXT + 1 : s.SID_TEXT + 1 + len(text)] = text.encode()
    arrays.sids[sid * s.SID_STRIDE : (sid + 1) * s.SID_STRIDE] = np.frombuffer(
        bytes(entry), np.uint8
    )
    arrays.state[s.SID_COUNT] = sid + 1
    return sid
