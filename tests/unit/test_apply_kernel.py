"""The kernel of apply without a server: literals, truncated values, bitmaps and lanes."""

import struct
from decimal import Decimal

import numpy as np
import pytest
from pymysql.converters import escape_string

from millrace.consumer.kernel import walk
from millrace.consumer.kernel.groups import bind_groups, hold_keys, pack_lanes
from millrace.consumer.records.numbers import Seqs
from millrace.consumer.records.row_schemas import RowSchemas, make_programs
from millrace.consumer.records.rows import Rows, walk_values
from millrace.consumer.tables.causality_keys import KeyEntries
from millrace.consumer.tables.table_plan import AFTER, compared, make_shape
from millrace.consumer.target.bitmap import from_bitmaps, not_applied, to_bitmap
from millrace.schemas.record.avro_schema import envelope_schema
from millrace.schemas.table.structure import Column, ColumnType, TableSchema, TextEncoding, TypeCode
from tests.kit.apply.tables import accounts, integer, table
from tests.kit.apply.topic import SET, RecordStream
from tests.kit.apply.values import values_of


def _walked(made: TableSchema, rows: list[dict[str, object]]) -> Rows:
    stream = RecordStream()
    for row in rows:
        stream.insert(made, row)
    return _walk(made, stream.values[1:])


def _walk(made: TableSchema, values: list[bytes]) -> Rows:
    programs = make_programs(RowSchemas({100: envelope_schema(SET, made).text}))
    return walk_values(values_of(values), programs)


def _literals(type_: ColumnType, values: list[object]) -> list[str]:
    made = table("d", "t", Column("v", type_, nullable=True), key=())
    rows = _walked(made, [{"v": value} for value in values])
    shape = make_shape(rows.programs.layouts[0], compared(AFTER, [0]))
    return [
        rows.text_of(rows.firsts(np.array([number])), shape).decode("latin1")
        for number in range(len(rows))
    ]


def test_decimals_are_written_digit_by_digit() -> None:
    """Any precision and scale up to DECIMAL(65,30), both signs, as Python prints them."""
    values = [Decimal(sign * (10**digits - 1)) for digits in range(36) for sign in (1, -1)]
    values += [Decimal(1).scaleb(-scale) for scale in range(31)]
    values += [Decimal(10**9).scaleb(-30), Decimal(-(10**18)), Decimal(0)]
    found = _literals(ColumnType(TypeCode.NEWDECIMAL, 65 << 8 | 30), [*values])
    assert found == [f"{value:.30f}" for value in values]


def test_integers_are_written_to_their_limits() -> None:
    """The limits are those of signed and unsigned 64-bit integers."""
    values = [0, 9, -9, 10, 2**63 - 1, -(2**63)]
    assert _literals(ColumnType(TypeCode.LONGLONG), [*values]) == [str(value) for value in values]
    unsigned = [Decimal(0), Decimal(127), Decimal(2**64 - 1)]
    type_ = ColumnType(TypeCode.LONGLONG, is_unsigned=True)
    assert _literals(type_, [*unsigned]) == [str(value) for value in unsigned]
    assert _literals(ColumnType(TypeCode.BIT, 64), [b"\xff" * 8, b"\0\x02", None]) == [
        str(2**64 - 1),
        "2",
        "NULL",
    ]


def test_doubles_read_back_as_the_same_bits() -> None:
    """The text is the shortest with an exponent, so that the server reads a DOUBLE; zero keeps its sign."""
    values = [0.0, -0.0, 0.1, 1e16, 123456789012345680.0, 5e-324, 1.7976931348623157e308, -1 / 3]
    found = _literals(ColumnType(TypeCode.DOUBLE, 8), [*values])
    assert [struct.pack("<d", float(text)) for text in found] == [
        struct.pack("<d", v) for v in values
    ]
    assert all("e" in text for text in found)


def test_texts_are_escaped_as_in_pymysql() -> None:
    """The text matches PyMySQL's, apart from needless escapes; bytes have their introducer."""
    type_ = ColumnType(TypeCode.VARCHAR, 400, text=TextEncoding("utf8mb4", 45))
    values = ["", "it's", "back\\slash", "nul\0", 'quote"', "line\nend", "é🛒", "\x1a"]
    for found, value in zip(_literals(type_, [*values]), values, strict=True):
        plain = escape_string(value).replace('\\"', '"').replace("\\n", "\n").replace("\\Z", "\x1a")
        assert found.encode("latin1").decode() == f"'{plain}'"
    blob = ColumnType(TypeCode.BLOB, 2, text=TextEncoding("binary", 63))
    assert _literals(blob, [b"\xff'\0"]) == ["_binary'\xff\\'\\0'"]


def test_record_truncated_at_any_byte_is_detected() -> None:
    """No prefix of a record passes as a record, and nothing is read past its end."""
    made = accounts("d")
    stream = RecordStream()
    stream.update(
        made, {"id": 1, "code": 2, "mail": "x", "amount": 3}, {"id": 1, "mail": None, "amount": 4}
    )
    value = stream.values[-1]
    assert len(_walk(made, [value])) == 1
    for size in range(6, len(value)):
        rows = _walk(made, [value[:size]])
        assert (len(rows), rows.status) == (0, walk.TORN), size
    assert _walk(made, [value + b"\0"]).status == walk.TORN


def test_unknown_schema_stops_the_walk_before_its_record() -> None:
    """The records before it are walked."""
    made, other = accounts("d"), table("d", "other", integer("id"))
    stream = RecordStream()
    stream.insert(made, {"id": 1, "amount": 1})
    stream.insert(other, {"id": 1})
    rows = _walk(made, [stream.values[1], stream.values[3]])
    assert (len(rows), rows.status) == (1, walk.UNKNOWN_SCHEMA)


@pytest.mark.parametrize("seqs", [[5], [1, 2, 3], [7, 9, 64, 1000]])
def test_bitmaps_round_trip_their_seqs(seqs: list[int]) -> None:
    """Bitmaps are packed and unpacked, alone and joined with another."""
    bitmap = to_bitmap(Seqs(np.array(seqs)))
    assert list(from_bitmaps([bitmap])) == seqs
    assert list(from_bitmaps([bitmap, to_bitmap(Seqs(np.array([2000])))])) == [*seqs, 2000]
    waiting = not_applied(Seqs(np.arange(1, 1001)), mark=1, applied=from_bitmaps([bitmap]))
    assert set(np.flatnonzero(waiting) + 1) == set(range(2, 1001)) - set(seqs)


def _entries(*records: list[tuple[int, int]]) -> KeyEntries:
    flat = [(owner, *entry) for owner, held in enumerate(records) for entry in held]
    return KeyEntries(
        np.array([owner for owner, _, _ in flat], np.int64),
        np.array([value for _, value, _ in flat], np.uint64),
        np.array([mode for _, _, mode in flat], np.uint8),
    )


def test_only_exclusive_keys_join_records() -> None:
    """Records that only share a key stay separate; one that holds it exclusively joins them."""
    assert list(_entries([(1, 0)], [(1, 0)], [(2, 1)]).groups(3)) == [0, 1, 2]
    assert list(_entries([(1, 0)], [(1, 1)], [(1, 0)]).groups(3)) == [0, 0, 0]
    assert list(_entries([(1, 1)], [(2, 1)], [(1, 1), (2, 1)]).groups(3)) == [0, 0, 0]


def test_levels_rise_with_each_exclusive_holder() -> None:
    """Shared holders are on one level, after the exclusive holder before them and before the next one."""
    entries = _entries([(1, 1)], [(1, 0)], [(1, 0)], [(1, 1)], [(2, 1)])
    assert list(entries.levels(5)) == [0, 1, 1, 2, 0]


def test_lanes_get_similar_weights() -> None:
    """A large group fills a separate lane; small ones share the others; a group is never split."""
    groups = np.array([0] * 100 + list(range(100, 400)))
    lanes = pack_lanes(groups, np.ones(400, np.int64), 4)
    assert len(set(lanes[:100])) == 1
    assert max(np.bincount(lanes)) <= 130
    again = pack_lanes(groups, np.ones(400, np.int64), 4)
    assert list(again) == list(lanes)


def test_bound_group_goes_to_its_lane() -> None:
    """The others fill the remaining room."""
    groups, weights = np.arange(8), np.ones(8, np.int64)
    bound = np.full(8, -1, np.int64)
    bound[[0, 1, 2, 7]] = 1
    lanes = pack_lanes(groups, weights, 2, bound)
    assert list(lanes) == [1, 1, 1, 0, 0, 0, 0, 1]


class _Held:
    """The keys that flights hold. ``SHARED`` and ``EXCLUSIVE`` are the modes of an entry."""

    def __init__(self, places: int = 16) -> None:
        self.table = np.zeros(places, np.uint64)
        self.slots = np.zeros((places, 3), np.int64)

    def hold(
        self, flight: int, lanes: list[int], *records: list[tuple[int, int]], done: int = 0
    ) -> None:
        """A flight with these records in these lanes takes off; flights up to ``done`` have ended."""
        given = _entries(*records)
        hold_keys(
            given.owners,
            given.hashes,
            given.modes,
            np.array(lanes, np.int64),
            flight,
            self.table,
            self.slots,
            done,
        )

    def bind(self, *records: list[tuple[int, int]], done: int = 0) -> list[int] | None:
        """The lane of each record's group; None if a group needs two lanes."""
        given, count = _entries(*records), len(records)
        groups, bound = given.groups(count), np.full(count, -1, np.int64)
        is_bound = bind_groups(
            given.owners,
            given.hashes,
            given.modes,
            groups,
            self.table,
            self.slots,
            done,
            bound,
        )
        return [int(bound[group]) for group in groups] if is_bound else None


SHARED, EXCLUSIVE = 0, 1


def test_key_of_an_earlier_flight_binds_its_group() -> None:
    """All records of the group follow, even those without that key."""
    held = _Held()
    held.hold(1, [3, 2], [(7, EXCLUSIVE)], [(8, EXCLUSIVE)])
    assert held.bind([(7, EXCLUSIVE), (9, EXCLUSIVE)], [(9, EXCLUSIVE)], [(5, EXCLUSIVE)]) == [
        3,
        3,
        -1,
    ]
    assert held.bind([(8, EXCLUSIVE)]) == [2]


def test_group_that_needs_two_lanes_is_not_bound() -> None:
    """Its records would wait for parts of both lanes: the earlier flights end first."""
    held = _Held()
    held.hold(1, [3, 2, 3], [(7, EXCLUSIVE)], [(8, EXCLUSIVE)], [(9, EXCLUSIVE)])
    assert held.bind([(7, EXCLUSIVE), (8, EXCLUSIVE)]) is None
    assert held.bind([(7, EXCLUSIVE), (5, EXCLUSIVE)], [(8, EXCLUSIVE), (5, EXCLUSIVE)]) is None
    assert held.bind([(7, EXCLUSIVE), (9, EXCLUSIVE)]) == [3]


@pytest.mark.parametrize("first", [SHARED, EXCLUSIVE])
@pytest.mark.parametrize("second", [SHARED, EXCLUSIVE])
def test_shared_keys_bind_only_to_an_exclusive_one(first: int, second: int) -> None:
    """Children of one parent go to any lane; a change of the parent follows them."""
    held = _Held()
    held.hold(1, [3], [(7, first)])
    assert held.bind([(7, second)]) == [3 if EXCLUSIVE in (first, second) else -1]


def test_key_shared_by_two_lanes_binds_no_exclusive_one() -> None:
    """In one flight or in two."""
    held = _Held()
    held.hold(1, [3, 2], [(7, SHARED)], [(7, SHARED)])
    assert held.bind([(7, SHARED)]) == [-1]
    assert held.bind([(7, EXCLUSIVE)]) is None
    held.hold(1, [1], [(8, SHARED)])
    held.hold(2, [0], [(8, SHARED)])
    assert held.bind([(8, EXCLUSIVE)]) is None


def test_key_that_was_ever_exclusive_binds_shared_ones() -> None:
    """A later flight shares the key in the same lane; the exclusive holder may still be under way."""
    held = _Held()
    held.hold(1, [3], [(7, EXCLUSIVE)])
    held.hold(2, [3], [(7, SHARED)])
    assert held.bind([(7, SHARED)]) == [3]
    held.hold(3, [2, 2], [(8, SHARED)], [(8, EXCLUSIVE)])
    assert held.bind([(8, SHARED)]) == [2]


def test_keys_of_ended_flights_are_forgotten() -> None:
    """A key that a later flight holds, too, stays. A new holder replaces the lane of an ended one."""
    held = _Held()
    held.hold(1, [3, 3], [(7, EXCLUSIVE)], [(8, EXCLUSIVE)])
    held.hold(2, [3], [(8, EXCLUSIVE)])
    assert held.bind([(7, EXCLUSIVE)], [(8, EXCLUSIVE)]) == [3, 3]
    assert held.bind([(7, EXCLUSIVE)], [(8, EXCLUSIVE)], done=1) == [-1, 3]
    assert held.bind([(7, EXCLUSIVE)], [(8, EXCLUSIVE)], done=2) == [-1, -1]
    held.hold(3, [1, 0], [(7, SHARED)], [(8, EXCLUSIVE)], done=2)
    assert held.bind([(7, EXCLUSIVE)], [(8, EXCLUSIVE)], done=2) == [1, 0]
    assert held.bind([(7, SHARED)], done=2) == [-1]


@pytest.mark.parametrize("last", [16 * 5 + 15, 16 * 5 + 3])
def test_keys_of_one_place_are_distinguished(last: int) -> None:
    """Hashes that are equal modulo the table's size take the next places, around its end, also past ended flights."""
    keys = [last - 16 * number for number in range(5)]
    held = _Held()
    held.hold(1, [0, 1], *([(key, EXCLUSIVE)] for key in keys[:2]))
    held.hold(2, [2, 3], *([(key, EXCLUSIVE)] for key in keys[2:4]))
    wanted = [[(key, EXCLUSIVE)] for key in keys]
    assert held.bind(*wanted) == [0, 1, 2, 3, -1]
    assert held.bind(*wanted, done=1) == [-1, -1, 2, 3, -1]
    held.hold(3, [4, 5], [(keys[4], EXCLUSIVE)], [(keys[0], EXCLUSIVE)], done=1)
    assert held.bind(*wanted, done=1) == [5, -1, 2, 3, 4]


def test_key_of_hash_zero_is_held() -> None:
    """A free place of the table has the same number."""
    held = _Held()
    assert held.bind([(0, EXCLUSIVE)]) == [-1]
    held.hold(1, [2], [(0, EXCLUSIVE)])
    assert held.bind([(0, EXCLUSIVE)]) == [2]
