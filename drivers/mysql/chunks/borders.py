"""Finds the borders of chunks on a server, in the order of the key, each by one look into the index.

The look reads only the index, from the last border on. Rows may come and go meanwhile: a chunk then has other rows than
was asked for, but the chunks of a table still cover each key exactly once. The caller asks the server.
"""

from collections.abc import Callable, Iterator, Sequence

from millrace.drivers.mysql.chunks.chunk import EVERYTHING, Border, Chunk
from millrace.drivers.mysql.chunks.key import FORCED, ChunkKey

Query = Callable[[str], Sequence[Sequence[object]]]  # runs one statement and returns its rows


def next_border(
    query: Query, table: str, key: ChunkKey, whole: Chunk, *, rows: int, condition: str = ""
) -> Border | None:
    """The key of the row that is ``rows`` rows after the begin of ``whole``; None if it has not more rows than that.

    So the chunk that follows the border is never empty, unless its rows are deleted meanwhile. ``table``: its quoted
    name. ``condition``: only rows that match it count, and no border is the key of another one.
    """
    where = whole.where(key)
    if condition:
        where = f"({where}) AND ({condition})"
    order = ", ".join(column.sorting for column in key.columns)
    read = ", ".join(column.read for column in key.columns)
    index = FORCED if key.name == "PRIMARY" else ""
    found = query(
        f"SELECT {read} FROM {table}{index}"
        + (f" WHERE {where}" if where != EVERYTHING else "")
        + f" ORDER BY {order} LIMIT {rows - 1}, 2"
    )
    if len(found) < 2:
        return None
    return Border(tuple(_text(value) for value in found[0]))


def chunks(
    query: Query,
    table: str,
    key: ChunkKey,
    *,
    rows: Callable[[], int],
    begin: Chunk | None = None,
    condition: str = "",
) -> Iterator[Chunk]:
    """The chunks of a table, found one by one. ``rows``: the wanted size of the next one.

    ``begin``: the last chunk that was found earlier; its successors follow, none if it was the last. ``condition`` as
    in ``next_border``.
    """
    if begin is None:
        yield from parts(query, table, key, Chunk(0), rows=rows, condition=condition)
    elif not begin.is_last:
        rest = Chunk(begin.number + 1, begin.through)
        yield from parts(query, table, key, rest, rows=rows, condition=condition)


def parts(
    query: Query,
    table: str,
    key: ChunkKey,
    whole: Chunk,
    *,
    rows: Callable[[], int],
    condition: str = "",
) -> Iterator[Chunk]:
    """A chunk as smaller ones, found one by one, which cover each key of it exactly once. The first has its number."""
    left = whole
    while through := next_border(query, table, key, left, rows=rows(), condition=condition):
        yield Chunk(left.number, left.after, through)
        left = Chunk(left.number + 1, through, whole.through)
    yield left


def _text(value: object) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)
