"""A damaged table map ends in a product error; lengths are never guessed."""

from hypothesis import given
from hypothesis import strategies as st

from millrace.errors import Fatal
from millrace.schemas.gtid import Flavour
from millrace.schemas.table.structure import TableSchema
from millrace.schemas.table.table_map import parse_table_map
from tests.kit.binlog.table_map_vectors import LOGGED

REFUSALS = ("MR-6003", "MR-6004", "MR-6005", "MR-6006")


def read(body: bytes, flavour: Flavour) -> TableSchema | str:
    """Return the table, or the code of its refusal."""
    try:
        table = parse_table_map(body, flavour=flavour)[1]
    except Fatal as error:
        return error.code
    return table


bodies = st.sampled_from(LOGGED)


@given(bodies, st.lists(st.tuples(st.integers(0, 400), st.integers(0, 255)), max_size=4))
def test_damaged_table_map_is_read_or_refused(
    logged: tuple[Flavour, bytes], damage: list[tuple[int, int]]
) -> None:
    """Some damage gives another table, which the checksum detects; the rest is Fatal with a code."""
    flavour, body = logged
    damaged = bytearray(body)
    for at, value in damage:
        damaged[at % len(damaged)] = value
    table = read(bytes(damaged), flavour)
    assert isinstance(table, TableSchema) or (damage and table in REFUSALS)


@given(st.binary(max_size=200))
def test_random_bytes_are_no_table_map(body: bytes) -> None:
    """No random bytes parse as a table map."""
    assert read(body, Flavour.MYSQL) in REFUSALS
