"""Damaged records in apply's kernel give rows or an error with its offset, and touch no foreign memory."""

import os
import subprocess
import sys
from decimal import Decimal

import pytest

from millrace.consumer.kernel import walk
from millrace.consumer.records.row_schemas import RowSchemas, make_programs
from millrace.consumer.records.rows import walk_values
from millrace.errors import Fatal
from millrace.schemas.record.avro_codec import decode, encode
from millrace.schemas.record.avro_schema import envelope_schema
from millrace.schemas.record.framing import frame
from tests.kit.apply.topic import SET, RecordStream
from tests.kit.apply.values import values_of
from tests.kit.fuzz.record import EVERYTHING, SIMPLE, read, row

CHECKED = {"MILLRACE_KERNEL_CHECKED": "1"}
UNCOMPILED = {"NUMBA_DISABLE_JIT": "1"}


def _fuzzed(seed: int, rounds: int, environment: dict[str, str]) -> str:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-m", "tests.kit.fuzz.record", str(seed), str(rounds)],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert "MR-5032" in done.stdout
    return done.stdout


@pytest.mark.guarantee("robust")
def test_damaged_records_give_rows_or_an_error_with_offset() -> None:
    """Records are cut, flipped, lengthened, or have wrong magic, unknown ids or lengths of 2**63.

    Apply and the reference decoder read them. The kernel runs as plain Python, which needs no compiler and refuses an
    index outside an array.
    """
    _fuzzed(11, 40, UNCOMPILED)


@pytest.mark.chaos
@pytest.mark.parametrize(
    ("environment", "rounds"),
    [(CHECKED, 60_000), (UNCOMPILED, 2_000)],
    ids=["checked", "uncompiled"],
)
def test_many_damaged_records_give_rows_or_an_error_with_offset(
    environment: dict[str, str], rounds: int
) -> None:
    """The same property, tested for minutes."""
    _fuzzed(int.from_bytes(os.urandom(3)), rounds, environment)


def _record(op: str, *, before: bool, after: bool, **changed: object) -> bytes:
    """Return a record of EVERYTHING with these images, for any operation."""
    wanted = {column.name for column in EVERYTHING.columns}
    image = {name: value for name, value in (row(1) | changed).items() if name in wanted}
    stream = RecordStream()
    stream.update(EVERYTHING, image, image)
    plain = _plain(stream.values[-1])
    plain |= {"op": op}
    plain |= {} if before else {"before": None}
    plain |= {} if after else {"after": None}
    return frame(100, encode(envelope_schema(SET, EVERYTHING).text, plain))


def _plain(value: bytes) -> dict[str, object]:
    return decode(envelope_schema(SET, EVERYTHING).text, value[5:])


def _status(value: bytes) -> int:
    programs = make_programs(RowSchemas({100: envelope_schema(SET, EVERYTHING).text}))
    return walk_values(values_of([value]), programs).status


@pytest.mark.parametrize(
    ("op", "before", "after", "status"),
    [
        ("c", False, True, walk.OK),
        ("u", True, True, walk.OK),
        ("d", True, False, walk.OK),
        ("c", True, True, walk.BAD_OP),
        ("c", False, False, walk.BAD_OP),
        ("u", False, True, walk.BAD_OP),
        ("u", True, False, walk.BAD_OP),
        ("d", False, True, walk.BAD_OP),
        ("r", False, True, walk.OK),
        ("r", True, True, walk.BAD_OP),
        ("x", False, True, walk.BAD_OP),
    ],
)
def test_images_must_match_the_operation(op: str, before: bool, after: bool, status: int) -> None:
    """An update without its before image is not an update of a row of NULLs."""
    assert _status(_record(op, before=before, after=after)) == status


def _with_a_decimal_of(length: int) -> bytes:
    """Return a record whose `big` has this many bytes."""
    value = _record("c", before=False, after=True, big=Decimal(2**64 - 1))
    digits = b"\0" + b"\xff" * 8  # of `big`, after their length
    place = value.index(b"\x12" + digits)
    prefix = (
        bytes([2 * length & 127 | 128, 2 * length >> 7]) if length > 63 else bytes([2 * length])
    )
    return value[:place] + prefix + b"\x11" * length + value[place + 10 :]


def test_overlong_decimal_is_refused() -> None:
    """Its digits exceeded the kernel's array and were written past its end."""
    for length, status in ((32, walk.OK), (33, walk.TORN), (400, walk.TORN)):
        assert _status(_with_a_decimal_of(length)) == status, length


def long_decimal_is_read() -> None:
    """Read the record after its schema, as an executor does."""
    stream = RecordStream()
    stream.introduce(EVERYTHING, schema_id=100)
    with pytest.raises(Fatal, match="it is truncated, or does not match its schema"):
        read([*stream.values, _with_a_decimal_of(400)])


@pytest.mark.parametrize("is_bound", [True, False])
def test_decimal_without_its_bound_is_written_past_an_array(is_bound: bool) -> None:
    """Plain Python detects the write; with the bound the record is refused."""
    program = (
        "from millrace.consumer.kernel import walk\n"
        f"walk.DECIMAL_BYTES_MAX = {'walk.DECIMAL_BYTES_MAX' if is_bound else 1 << 20}\n"
        "from tests.property.test_record_fuzz import long_decimal_is_read\n"
        "long_decimal_is_read()\n"
    )
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", program],
        env={**os.environ, **UNCOMPILED},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    last = done.stderr.strip().rpartition("\n")[2]
    assert (last == "") if is_bound else ("IndexError" in last and "size 40" in last), done.stderr


@pytest.mark.parametrize("head", [1, 3, 255])
def test_value_of_unknown_kind_is_reported_with_its_offset(head: int) -> None:
    """Byte 5 of a value gives its kind. A value of 1 was once skipped silently."""
    stream = RecordStream()
    stream.insert(SIMPLE, {"id": 1, "mail": "x"})
    stream.insert(SIMPLE, {"id": 2, "mail": "y"})
    bad = bytearray(stream.values[1])
    bad[5] = head
    with pytest.raises(Fatal) as caught:
        read([stream.values[0], bytes(bad), stream.values[2]])
    assert caught.value.code == "MR-5032"
    assert caught.value.context["offset"] == "1"
