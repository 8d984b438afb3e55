"""Which tables a snapshot can read, and the key by which it divides them."""

from dataclasses import replace

from millrace.drivers.mysql.catalog import CatalogTable
from millrace.drivers.mysql.chunks.key import ChunkKey, chunk_key


def snapshot_key(table: CatalogTable) -> ChunkKey | None:
    """The primary key, which divides a table into chunks, if it can. No primary key can be hidden."""
    primary = table.primary
    if primary is None:
        return None
    return chunk_key(table.columns, (replace(primary, finds_rows=not primary.is_hash),))


def refusal(table: CatalogTable) -> str:
    """Why no snapshot of the table can be taken; "" if one can."""
    if table.primary is None:
        return "it has no primary key, so a subscriber does not recognize a row that it has already"
    if snapshot_key(table) is None:
        return "its primary key has only a part of a column, or a period"
    if table.is_versioned:
        return "it is system-versioned, and its history has no primary key"
    return ""
