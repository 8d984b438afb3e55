"""Makes well-formed input of unusual structure, at and beyond every fixed size, and reads it as the product does.

    python -m tests.kit.fuzz.structure SEED ROUNDS

The other modules of this folder damage bytes. Here the bytes are what their format says, and the counts are unusual:
columns, columns of a key, labels, names, blocks of metadata, levels of JSON, sources of GTIDs, intervals, table IDs,
digits. First come the borders (``BORDERS``), each with the outcome that is right. Then ROUNDS tables of random counts.
The outcome is a number of rows or a coded error. An access beyond an array is an error under
MILLRACE_KERNEL_CHECKED=1 and under NUMBA_DISABLE_JIT=1; without either the module refuses to run. A case that does not
end within ``CASE_S`` ends the process. Prints the count of each outcome.

``tests.contracts.test_fixed_sizes`` demands that every array of a fixed size has a border here, or a reason.
"""

import random
import signal
import struct
import sys
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np

from millrace.consumer.kernel import digits, literals, walk
from millrace.consumer.records.row_schemas import RowSchemas, make_programs
from millrace.consumer.records.rows import walk_values
from millrace.errors import MillraceError
from millrace.producer.binlog import transactions
from millrace.producer.binlog.crc import TABLES
from millrace.producer.binlog.gtid_runs import new_runs
from millrace.producer.binlog.walk import FOUND_WORDS, find_prepared, find_table_maps, walk_events
from millrace.producer.convert import arrays, converter
from millrace.producer.convert.kernel import program as p
from millrace.producer.convert.kernel import state as s
from millrace.producer.convert.kernel.compiled import INTERPRETED
from millrace.producer.convert.kernel.inflate import inflate
from millrace.producer.convert.kernel.json_binary import DEPTH_MAX
from millrace.schemas.documents import TableFilter
from millrace.schemas.place import FIRST_POS
from millrace.schemas.progress import OpenTransaction
from millrace.schemas.record.avro_schema import envelope_schema
from millrace.schemas.record.row_layout import SCALE_MAX
from tests.kit.apply.tables import integer, table
from tests.kit.apply.topic import SET as TOPIC_SET
from tests.kit.apply.topic import RecordStream
from tests.kit.apply.values import values_of
from tests.kit.binlog.builder import SOURCE_UUID, BinlogBuilder
from tests.kit.capture.converter import UUID_TEXT, Conversion, FileReader, convert, mysql_progress
from tests.kit.fuzz.kernel import assert_guarded, guarded_walk
from tests.kit.fuzz.relay import watched

CASE_S = 120
BROKEN, BROKEN_GTID = "MR-6003", "MR-6001"
LONG, ENUM, SET, DECIMAL, JSON, BINARY = 3, 247, 248, 246, 245, 254
COLUMNS_MAX, DIGITS_MAX, ROWS = 4096, 65, 3

Outcome = int | str
Case = tuple[str, Outcome, Callable[[], Outcome]]


def packed(number: int) -> bytes:
    """MySQL's length-encoded integer."""
    if number < 251:
        return bytes([number])
    return b"\xfc" + struct.pack("<H", number) if number < 1 << 16 else b"\xfd" + _three(number)


def sized(content: bytes) -> bytes:
    """A text after its length."""
    return packed(len(content)) + content


@dataclass(frozen=True, slots=True)
class Wide:
    """A column and one value of it."""

    code: int = LONG
    metadata: bytes = b""
    value: bytes = b"\1\2\3\4"
    labels: int = 0


def set_of(labels: int) -> Wide:
    """A SET with all its bits set."""
    size = next((size for size in (1, 2, 3, 4, 8) if labels <= 8 * size), 8)
    bits = ((1 << min(labels, 8 * size)) - 1).to_bytes(size, "little")
    return Wide(BINARY, bytes([SET, size]), bits, labels)


def enum_of(labels: int) -> Wide:
    """An ENUM with its last label."""
    size = 1 if labels < 256 else 2
    return Wide(
        BINARY, bytes([ENUM, size]), min(labels, 256**size - 1).to_bytes(size, "little"), labels
    )


def decimal_of(precision: int, scale: int) -> Wide:
    """A DECIMAL of nines."""
    sizes = (0, 1, 1, 2, 2, 3, 3, 4, 4)
    front = precision - scale
    groups = [front % 9, *[9] * (front // 9), *[9] * (scale // 9), scale % 9]
    value = b"".join(
        (10**digits - 1).to_bytes(4 if digits == 9 else sizes[digits], "big") for digits in groups
    )
    return Wide(DECIMAL, bytes([precision, scale]), bytes([value[0] ^ 128]) + value[1:])


def json_of(levels: int) -> Wide:
    """A JSON array in an array, and so on."""
    document = b""
    for _ in range(levels):
        inner = b"\2" + document if document else b""
        entry = (b"\2" + struct.pack("<H", 7) + inner[1:]) if document else b""
        document = struct.pack("<HH", 1 if document else 0, 4 + len(entry)) + entry
    document = b"\2" + document
    return Wide(JSON, b"\4", struct.pack("<I", len(document)) + document)


@dataclass(frozen=True, slots=True)
class Structure:
    """A table of any shape, with ``ROWS`` equal rows in one event."""

    columns: tuple[Wide, ...] = (Wide(),)
    key: int = 1
    names: tuple[bytes, bytes] = (b"shop", b"wide")
    column_name: int = 0  # its bytes; 0: a short one
    blocks: tuple[bytes, ...] = ()  # of metadata, after those that the reader needs
    maps: int = 1  # table IDs that are mapped and have rows, in one source transaction
    is_included: bool = True

    def table_map(self, table_id: int) -> bytes:
        """The body of the TABLE_MAP."""
        count = len(self.columns)
        names = b"".join(bytes([len(name)]) + name + b"\0" for name in self.names)
        metadata = sized(b"".join(column.metadata for column in self.columns))
        codes = packed(count) + bytes(column.code for column in self.columns)
        real = [column.metadata[0] if column.code == BINARY else 0 for column in self.columns]
        fields = {
            1: bytes((count + 7) // 8),
            4: b"".join(sized(name) for name in self._names()),
            8: b"".join(packed(place) for place in range(self.key)),
            5: self._labels(SET, real),
            6: self._labels(ENUM, real),
            10: packed(255),
        }
        optional = b"".join(bytes([kind]) + sized(fields[kind]) for kind in fields)
        head = table_id.to_bytes(6, "little") + b"\1\0" + names + codes + metadata
        return head + bytes((count + 7) // 8) + optional + b"".join(self.blocks)

    def rows(self, table_id: int) -> bytes:
        """The body of the WRITE_ROWS."""
        nulls = (len(self.columns) + 7) // 8
        head = table_id.to_bytes(6, "little") + struct.pack("<HH", 1, 2) + packed(len(self.columns))
        image = bytes(nulls) + b"".join(column.value for column in self.columns)
        return head + b"\xff" * nulls + ROWS * (image or b"\0")

    def run(self) -> Outcome:
        """Convert it."""
        builder = BinlogBuilder()
        builder.gtid(1)
        builder.query("BEGIN")
        for table_id in range(7, 7 + self.maps):
            builder.event(19, self.table_map(table_id))
        for table_id in range(7, 7 + self.maps):
            builder.event(30, self.rows(table_id))
        builder.xid()
        only = TableFilter() if self.is_included else TableFilter(include=("none.none",))
        return converted(convert(builder, filter=only))

    def _names(self) -> Iterator[bytes]:
        for place in range(len(self.columns)):
            name = b"c%d" % place
            yield name.rjust(self.column_name, b"n")

    def _labels(self, kind: int, real: list[int]) -> bytes:
        return b"".join(
            packed(column.labels) + b"".join(sized(b"l%d" % at) for at in range(column.labels))
            for column, code in zip(self.columns, real, strict=True)
            if code == kind
        )


def converted(conversion: Conversion) -> Outcome:
    """The rows, or the code of the error, which must have its coordinates."""
    try:
        return len(conversion.rows())
    except MillraceError as error:
        return error.code


def columns() -> Iterator[Case]:
    """Tables of any number of columns, and keys over them."""
    for count, outcome in ((1, ROWS), (COLUMNS_MAX, ROWS), (COLUMNS_MAX + 1, BROKEN)):
        yield f"{count} columns", outcome, Structure((Wide(),) * count).run
    for count in (1, COLUMNS_MAX + 1, 65_535):
        yield f"{count} excluded columns", 0, Structure((Wide(),) * count, is_included=False).run
    for is_included in (True, False):
        none = Structure((), key=0, is_included=is_included)
        yield f"no columns, included: {is_included}", BROKEN, none.run


def key_columns() -> Iterator[Case]:
    """Keys of any number of columns."""
    most = p.KEY_COLUMNS_MAX
    for key in (0, 1, most, most + 1, 2 * most + 1, COLUMNS_MAX):
        outcome = ROWS if key <= most else BROKEN
        yield f"{key} key columns", outcome, Structure((Wide(),) * max(key, 1), key=key).run


def labels() -> Iterator[Case]:
    """SET and ENUM of any number of labels."""
    for count in (1, 2, 8, 9, 32, 33, 63, p.SET_LABELS_MAX):
        yield f"SET of {count}", ROWS, Structure((Wide(), set_of(count))).run
    for count in (p.SET_LABELS_MAX + 1, 200):
        yield f"SET of {count}", BROKEN, Structure((Wide(), set_of(count))).run
    for count in (1, 255, 256, 65_535, 65_536):
        yield f"ENUM of {count}", ROWS, Structure((Wide(), enum_of(count))).run


def names() -> Iterator[Case]:
    """Long names, and blocks of metadata that no server writes."""
    for size in (0, 1, 64, 255):
        pair = (b"d" * size, b"t" * size)
        yield f"names of {size} bytes", ROWS, Structure(names=pair).run
    for size in (255, 65_000):
        yield f"a column name of {size} bytes", ROWS, Structure(column_name=size).run
    unknown = tuple(bytes([kind]) + sized(bytes(300)) for kind in range(20, 256))
    yield "236 unknown blocks", ROWS, Structure(blocks=unknown).run
    yield "a block twice", BROKEN, Structure(blocks=(b"\x14\0", b"\x14\0")).run
    room = s.HEAD_EVENT - s.HEAD_FILE - 2
    for size in (255, room, room + 1, s.HEADS_SIZE):
        builder = BinlogBuilder()
        builder.transaction(1, 7, "t", [(1, "a")])
        name = "b" * (size - 7) + ".000001"
        reader = FileReader({name: bytes(builder.content)})
        outcome: Outcome = 1 if size <= room else BROKEN
        yield f"a file name of {size} bytes", outcome, _of(Conversion(reader))


def values() -> Iterator[Case]:
    """Levels of JSON, digits of DECIMAL."""
    for levels in (1, DEPTH_MAX - 1, DEPTH_MAX, DEPTH_MAX + 1, 3 * DEPTH_MAX):
        outcome = ROWS if levels <= DEPTH_MAX else BROKEN
        yield f"JSON of {levels} levels", outcome, Structure((Wide(), json_of(levels))).run
    for precision, scale in ((1, 0), (18, 18), (19, 0), (DIGITS_MAX, 0), (DIGITS_MAX, SCALE_MAX)):
        column = decimal_of(precision, scale)
        yield f"DECIMAL({precision},{scale})", ROWS, Structure((Wide(), column)).run
    for precision, scale in ((DIGITS_MAX + 1, 0), (DIGITS_MAX, SCALE_MAX + 1), (255, 255)):
        column = decimal_of(precision, scale)
        yield f"DECIMAL({precision},{scale})", BROKEN, Structure((Wide(), column)).run


def tables() -> Iterator[Case]:
    """Table IDs and structures in one source transaction, and records of one call."""
    for maps in (arrays.TABLE_IDS // 4, arrays.TABLE_IDS // 2 + 1, 3 * arrays.TABLE_IDS):
        yield f"{maps} table IDs", ROWS * maps, Structure(maps=maps).run
    for count in (1023, 1024, 1025):  # of ``bounds``, which grows
        yield f"{count} rows in one event", count, _of(convert(_one_transaction(count)))
    many = BinlogBuilder()
    for number in range(1, 2 * arrays.TABLES_MAX + 2):
        many.transaction(number, number, f"t{number}", [(number, "a")])
    yield "more structures than are kept", 2 * arrays.TABLES_MAX + 1, _of(convert(many))


def gtids() -> Iterator[Case]:
    """Sources of GTIDs, tags, intervals, and the text of the one to resume in."""
    for count in (s.SIDS_AT_FIRST, s.SIDS_AT_FIRST + 1, 3 * s.SIDS_AT_FIRST):
        builder = BinlogBuilder()
        for number in range(count):
            builder.gtid(1, uuid=number.to_bytes(16, "big"))
            _insert(builder, number)
        yield f"{count} sources", count, _of(convert(builder))
    for count in (1024, 1025):
        builder = BinlogBuilder()
        for number in range(count):
            builder.gtid(2 * number + 1)
            _insert(builder, number)
        yield f"{count} intervals", count, _of(convert(builder))
    for size, outcome in ((1, 1), (32, 1), (33, BROKEN)):
        builder = BinlogBuilder()
        builder.event(42, tagged(b"t" * size))
        _insert(builder, 1)
        yield f"a tag of {size} bytes", outcome, _of(convert(builder))
    for gtid, outcome in (
        (f"{UUID_TEXT}:1", 1),
        (f"{UUID_TEXT}:{'t' * 33}:1", BROKEN_GTID),
        (f"{UUID_TEXT}:{'1' * s.GTID_BYTES_MAX}", BROKEN_GTID),
        ("é" * s.GTID_BYTES_MAX, BROKEN_GTID),
    ):
        start = mysql_progress("", seq=1, opened=OpenTransaction(gtid, 1))
        file = convert(_one_transaction(2), progress=start)
        yield f"resuming in {gtid}", outcome, _of(file)


def events() -> Iterator[Case]:
    """The relay's kernels: GTID runs, control events, events that are collected."""
    for count, outcome in ((1, transactions.OK), (2, transactions.OK), (3, transactions.RUNS_FULL)):
        builder = BinlogBuilder()
        for number in range(count):
            builder.gtid(1, uuid=number.to_bytes(16, "big"))
            _insert(builder, number)
        yield f"{count} runs", outcome, partial(walked, builder, runs=2)
    for size in (transactions.CONTROL_BYTES_MAX, transactions.CONTROL_BYTES_MAX + 1):
        for kind in (33, 42, 15):
            fits = size == transactions.CONTROL_BYTES_MAX
            builder = BinlogBuilder()
            body = b"\0" + SOURCE_UUID + struct.pack("<Q", 1) if kind == 33 else b""
            body = tagged(b"tt") if kind == 42 else body  # and an even number of zeros
            filler = bytes(size - 23 - len(body))
            builder.event(kind, body + (filler[:-1] + b"\1" if kind == 15 else filler))
            wanted = transactions.OK if fits else transactions.BAD_BODY
            name = f"an event {kind} of {size} bytes"
            yield name, wanted, partial(walked, builder)
    for count in (1, 2, 3):
        builder = BinlogBuilder()
        for number in range(count):
            builder.event(38, bytes(12))
            builder.map_shop_table("t", table_id=number)
        found = min(count, 2)
        yield f"{count} prepared", found, partial(collected, builder, 0)
        yield f"{count} table maps", found, partial(collected, builder, 1)


def walked(builder: BinlogBuilder, runs: int = 0) -> Outcome:
    """The status of opening a relay log."""
    octets = watched(np.frombuffer(bytes(builder.content), np.uint8).copy())
    state = watched(np.zeros(transactions.SLOTS, np.int64))
    state[transactions.POS] = state[transactions.BOUNDARY] = FIRST_POS
    room = watched(new_runs()[:runs] if runs else new_runs())
    folded = np.zeros(16, np.uint8)
    status, _ = walk_events(octets, 4, len(octets), state, room, TABLES, folded, False, True)
    return int(status)


def collected(builder: BinlogBuilder, which: int) -> Outcome:
    """How many events fit into two places."""
    octets = watched(np.frombuffer(bytes(builder.content), np.uint8).copy())
    room = watched(np.zeros((2, FOUND_WORDS), np.int64))
    first = 4 + int.from_bytes(octets[13:17].tobytes(), "little")
    if which:
        return int(find_table_maps(octets, first, len(octets), room)[0])
    return int(find_prepared(octets, first, len(octets), 0, room, True)[0])


def deflated() -> Iterator[Case]:
    """Dynamic blocks with any number of codes: the codes of a block are counted by 5, 5 and 4 bits of it."""
    yield "every head of a block", 0, deflate_heads


def deflate_heads() -> Outcome:
    """zlib is the judge: what it inflates, the kernel inflates to the same bytes."""
    chance = random.Random(0)
    for literals_ in (0, 29, 30, 31):
        for distances in (0, 29, 30, 31):
            for codes in (0, 14, 15):
                for _ in range(3):
                    head = 0b101 | literals_ << 3 | distances << 8 | codes << 13
                    rest = chance.choice((0, (1 << 800) - 1, chance.getrandbits(800)))
                    stream = (head | rest << 17).to_bytes(103, "little")
                    _compare_inflated(stream)
    for level in (0, 1, 9):
        for size in (0, 1, 65_535, 65_536):
            plain = bytes(chance.choices(range(97, 97 + chance.choice((1, 26))), k=size))
            packer = zlib.compressobj(level, zlib.DEFLATED, -15)
            _compare_inflated(packer.compress(plain) + packer.flush())
    return 0


def _compare_inflated(stream: bytes) -> None:
    room = watched(np.zeros(70_000, np.uint8))
    octets = watched(np.frombuffer(stream, np.uint8).copy())
    end = int(inflate(room, 0, len(room), octets, 0, len(octets), True))
    peer = zlib.decompressobj(-15)
    try:
        plain = peer.decompress(stream)
    except zlib.error:
        return
    if peer.eof:
        assert room[: max(end, 0)].tobytes() == plain, stream.hex()


def records() -> Iterator[Case]:
    """Records for apply: wide rows, long numbers."""
    for count in (1, COLUMNS_MAX, 2 * COLUMNS_MAX):
        yield f"a record of {count} columns", 1, partial(applied, count)
    most = walk.DECIMAL_BYTES_MAX
    for size, outcome in ((1, walk.OK), (most, walk.OK), (most + 1, walk.TORN)):
        for octet in (b"\x7f", b"\x80", b"\xff"):
            value = octet * size
            name = f"a number of {size} bytes {octet.hex()}"
            yield name, outcome, partial(number_applied, value)


def applied(count: int) -> Outcome:
    """The rows that are walked and written as literals."""
    made = table("d", "wide", *(integer(f"c{place}") for place in range(count)))
    stream = RecordStream()
    stream.insert(made, {f"c{place}": -(2**31) for place in range(count)})
    programs = make_programs(RowSchemas({100: envelope_schema(TOPIC_SET, made).text}))
    rows = walk_values(values_of(stream.values[-1:]), programs)
    shape = np.array([[1, count + place, 0, 0] for place in range(count)], np.int64)
    text = rows.text_of(rows.firsts(np.zeros(1, np.int64)), shape)
    assert text == b",".join([b"-2147483648"] * count)
    return len(rows)


def number_applied(value: bytes) -> Outcome:
    """The status of an unscaled number; it is written with every scale that a layout may have."""
    octets = watched(np.frombuffer(b"\0" + zigzag(len(value)) + value, np.uint8).copy())
    cells = watched(np.zeros((1, walk.CELL_WIDTH), np.int64))
    program = np.array([[1, walk.DECIMAL, 0, 0, 0]], np.int64)
    end, _ = walk.walk_row(octets, 1, len(octets), program, 0, 1, cells, 0)
    if end < 0:
        return walk.TORN
    for scale in (0, 1, SCALE_MAX):
        room = watched(np.zeros(digits.NUMBER_BYTES_MAX, np.uint8))
        size = literals.put_literal(room, 0, octets, cells, 0, literals.PLAIN, scale, octets)
        number = int.from_bytes(value, "big", signed=True)
        assert int(room[:size].tobytes().replace(b".", b"")) == number
    return walk.OK


def tagged(tag: bytes) -> bytes:
    """The body of a GTID_TAGGED event."""
    plain = b"".join(_varlen(octet) for octet in SOURCE_UUID)
    fields = b"\0\0" + b"\2" + plain + b"\4\4" + b"\6" + _varlen(len(tag)) + tag
    return b"\2\2\2" + fields


def zigzag(number: int) -> bytes:
    """A number of Avro that is not negative."""
    rest, out = number << 1, b""
    while rest >= 128:
        out += bytes([rest & 127 | 128])
        rest >>= 7
    return out + bytes([rest])


def _varlen(number: int) -> bytes:
    return bytes([number << 1]) if number < 128 else (number << 2 | 1).to_bytes(2, "little")


def _three(number: int) -> bytes:
    return struct.pack("<I", number)[:3]


def _of(conversion: Conversion) -> Callable[[], Outcome]:
    return partial(converted, conversion)


def _insert(builder: BinlogBuilder, number: int) -> None:
    builder.query("BEGIN")
    builder.map_shop_table("t", table_id=7)
    builder.insert(7, [(number, "a")])
    builder.xid()


def _one_transaction(rows: int) -> BinlogBuilder:
    builder = BinlogBuilder()
    builder.transaction(1, 7, "t", [(number, "a") for number in range(rows)])
    return builder


BORDERS: dict[str, Callable[[], Iterator[Case]]] = {
    made.__name__: made
    for made in (
        columns,
        key_columns,
        labels,
        names,
        values,
        tables,
        gtids,
        events,
        deflated,
        records,
    )
}


def random_structure(chance: random.Random) -> Structure:
    """Any counts; small ones are likely."""
    count = chance.choice((1, 2, 8, 9, 63, 64, 65, 130, chance.randrange(1, 300)))
    column = chance.choice(
        (
            Wide(),
            set_of(chance.randrange(1, 80)),
            enum_of(chance.choice((1, 255, 256, 300))),
            decimal_of(*sorted((chance.randrange(1, 70), chance.randrange(40)), reverse=True)),
            json_of(chance.choice((1, 2, 100, 101, 102))),
            Wide(BINARY, bytes([BINARY, 255]), b"\xff" + bytes(255)),
        )
    )
    return Structure(
        tuple(chance.choice((Wide(), column)) for _ in range(count)),
        key=chance.choice((0, 1, count, chance.randrange(count + 1))),
        column_name=chance.choice((0, 64, 300)),
        blocks=chance.choice(((), (b"\x20\0",), (b"\x0c" + sized(bytes((count + 7) // 8)),))),
        maps=chance.choice((1, 2, 20)),
        is_included=chance.random() < 3 / 4,
    )


def main() -> int:
    """See the module."""
    assert_guarded()
    if INTERPRETED:
        vars(converter)["walk"] = guarded_walk
    # limits of memory, not of an array: small, so that they are reached
    arrays.TABLE_IDS, arrays.TABLES_MAX = 64, 8
    seen: Counter[Outcome] = Counter()
    for border in BORDERS.values():
        for name, outcome, run in border():
            signal.alarm(CASE_S)
            found = run()
            assert found == outcome, f"{name}: {found!r}, not {outcome!r}"
            seen[found if isinstance(found, str) else "right"] += 1
    chance = random.Random(int(sys.argv[1]))
    for _ in range(int(sys.argv[2])):
        structure = random_structure(chance)
        signal.alarm(CASE_S)
        found = structure.run()
        whole = ROWS * structure.maps if structure.is_included else 0
        assert isinstance(found, str) or found == whole, structure
        seen[found if isinstance(found, str) else "rows"] += 1
    print(dict(seen))
    return 0


if __name__ == "__main__":
    sys.exit(main())
