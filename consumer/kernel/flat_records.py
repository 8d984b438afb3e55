"""Writes the changes of one table as records of Maxwell or Canal: one object with the row in ``data``.

An update is one record under the key after it. Its ``old`` has the columns that changed, with the values before. So the
record of a key that changed is not with those of the old key. Two settings are for that:

    setting           records of an update that changes the key (PART)
    neither           the update (1)
    HAS_TOMBSTONES    a tombstone of the old key (0), the update (1)
    SPLITS_KEYS       a delete of the old key (0), its tombstone if there are any (1), an insert (2)

``maxwell_values`` and ``canal_values`` write the values. Lines of the result: see ``record_parts``.
"""

import numpy as np

from millrace.consumer.kernel import changes as view
from millrace.consumer.kernel.canal_values import put_canal
from millrace.consumer.kernel.compiled import (
    Bytes,
    Hashes,
    Ints,
    Offsets,
    compiled,
    compiled_plain,
    int64,
)
from millrace.consumer.kernel.digits import WORK
from millrace.consumer.kernel.flat_source import SOURCE_WIDTH, read_source
from millrace.consumer.kernel.json_values import OK
from millrace.consumer.kernel.maxwell_values import put_maxwell
from millrace.consumer.kernel.record_parts import (
    CREATE,
    DELETE,
    add_line,
    is_owned,
    put_keys,
    source_start,
)

# settings; those of Maxwell follow
IS_CANAL, HAS_TOMBSTONES, SPLITS_KEYS = 0, 1, 2


@compiled_plain
def _put_event(
    out: Bytes,
    at: int,
    data: Bytes,
    cells: Ints,
    event: Ints,
    topic: Bytes,
    source: Ints,
    columns: Ints,
    singles: Ints,
    extras: Ints,
    fixed: Bytes,
    pieces: Ints,
    settings: Ints,
    work: Hashes,
) -> tuple[int, int]:
    """One value: (position after it, status)."""
    if settings[IS_CANAL] == 1:
        return put_canal(
            out,
            at,
            data,
            cells,
            event,
            topic,
            source,
            columns,
            singles,
            extras,
            fixed,
            pieces,
            work,
        )
    return put_maxwell(
        out,
        at,
        data,
        cells,
        event,
        topic,
        source,
        columns,
        singles,
        extras,
        fixed,
        pieces,
        settings,
        work,
    )


@compiled
def encode(
    out: Bytes,
    data: Bytes,
    cells: Ints,
    changes: Ints,
    topic: Bytes,
    offsets: Offsets,
    records: Ints,
    walked: Ints,
    width: int,
    columns: Ints,
    keys: Ints,
    singles: Ints,
    extras: Ints,
    fixed: Bytes,
    pieces: Ints,
    settings: Ints,
    owned: Bytes,
    lines: Ints,
) -> tuple[int, int, int]:
    """Write all changes: (bytes written, lines, status). ``lines`` must have three for each change.

    The arguments and the result are those of ``json_records.encode``. ``singles`` has the columns with their names
    alone, for objects that have some of them; ``extras``: see ``maxwell_values`` and ``canal_values``.
    """
    at, count = int64(0), int64(0)
    places = np.empty(4, np.int64)
    work = np.empty(WORK, np.uint64)
    source = np.empty(SOURCE_WIDTH, np.int64)
    event = np.empty(view.LINE_WIDTH, np.int64)
    for number in range(len(changes)):
        change = changes[number]
        begin = at
        at, status = put_keys(out, at, data, cells, change, keys, fixed, pieces, places, work)
        if status != OK:
            return at, number, status
        key, key_end, old_key, old_key_end = places[0], places[1], places[2], places[3]
        moves = old_key >= 0
        if len(owned) > 0 and not (
            is_owned(out, key, key_end, owned) or is_owned(out, old_key, old_key_end, owned)
        ):
            at = begin
            continue
        record = records[change[view.RECORD]]
        end = int64(offsets[change[view.RECORD] + 1])
        read_source(topic, source_start(walked, record, width), end, record, source)
        event[:] = change
        splits = moves and settings[SPLITS_KEYS] == 1
        has_tombstones = settings[HAS_TOMBSTONES] == 1
        if moves and not splits and has_tombstones:
            count = add_line(lines, count, old_key, old_key_end, -1, -1, change, 0)
        for which in range(2 if splits else 1):
            if splits:
                event[view.OP] = DELETE if which == 0 else CREATE
                event[view.BEFORE] = change[view.BEFORE] if which == 0 else -1
                event[view.AFTER] = -1 if which == 0 else change[view.AFTER]
            value = at
            at, status = _put_event(
                out,
                at,
                data,
                cells,
                event,
                topic,
                source,
                columns,
                singles,
                extras,
                fixed,
                pieces,
                settings,
                work,
            )
            if status != OK:
                return at, number, status
            if event[view.OP] != DELETE:
                part = int64(0)
                if moves:
                    part = int64(2) if splits else int64(1)
                count = add_line(lines, count, key, key_end, value, at, change, part)
                continue
            first, last = (old_key, old_key_end) if splits else (key, key_end)
            count = add_line(lines, count, first, last, value, at, change, 0)
            if has_tombstones and first >= 0:
                count = add_line(lines, count, first, last, -1, -1, change, 1)
    return at, count, OK
