"""LOAD DATA on real targets: the same rows as INSERT, and the same conflicts. Types: ``test_types_whole_way``."""

import random
from collections.abc import Iterator

import pytest

from millrace.consumer.tables.table_plans import TablePlans
from millrace.deploy.servers import DatabaseServer
from millrace.drivers.mysql.connection import connect
from millrace.errors import Fatal
from millrace.schemas.table.structure import Column, ColumnType, TableSchema, TextEncoding, TypeCode
from tests.kit.apply.local import LocalRecords, apply_task, endpoint_of, ignore, run_once, started
from tests.kit.apply.tables import integer, table, text
from tests.kit.apply.topic import RecordStream

ROWS = 300
SQL = "CREATE TABLE t (id INT PRIMARY KEY, w VARCHAR(60), b VARBINARY(60)) DEFAULT CHARSET=utf8mb4"
LATE = 250
_BYTES = ColumnType(TypeCode.VARCHAR, 60, text=TextEncoding("binary", 63))


@pytest.fixture
def switched_on(target_server: DatabaseServer) -> Iterator[None]:
    """Restore ``local_infile``."""
    yield
    target_server.execute("SET GLOBAL local_infile = ON")


def _table(name: str) -> TableSchema:
    return table(name, "t", integer("id"), text("w", 60), Column("b", _BYTES, nullable=True))


def _stream(name: str, step: int = 1) -> RecordStream:
    stream = RecordStream()
    for number in range(0, ROWS * step, step):
        stream.insert(_table(name), {"id": number, "w": f"w{number}", "b": b"\0"})
    stream.commit()
    return stream


def _count_loads(server: DatabaseServer) -> int:
    ((_, count),) = server.execute("SHOW GLOBAL STATUS LIKE 'Com_load'")
    return int(str(count))


def test_any_text_and_any_bytes_are_loaded(name: str, target_server: DatabaseServer) -> None:
    """Separators, escapes, NUL, the sign of NULL as text, characters of four bytes; all bytes in any order."""
    chance = random.Random(1)
    pieces = [
        "\t",
        "\n",
        "\\",
        "\\N",
        "\0",
        "'",
        '"',
        " ",
        "\r",
        "t",
        "n",
        "0",
        "ä",
        "東",
        "😀",
        "",
    ]
    texts = [None, *pieces, "NULL", *("".join(chance.choices(pieces, k=12)) for _ in range(ROWS))]
    rows = [(text, chance.randbytes(chance.randrange(60)) if text else None) for text in texts]
    stream = RecordStream()
    for number, (word, raw) in enumerate(rows):
        stream.insert(_table(name), {"id": number, "w": word, "b": raw})
    stream.commit()
    target_server.execute(SQL, db=name)
    before = _count_loads(target_server)
    run_once(target_server, apply_task(name), stream, is_large=False)
    assert _count_loads(target_server) == before + 1
    found = target_server.execute(f"SELECT HEX(w), HEX(b) FROM {name}.t ORDER BY id")
    assert found == [(_hex(word and word.encode()), _hex(raw)) for word, raw in rows]


def _hex(value: object) -> str | None:
    return value.hex().upper() if isinstance(value, bytes) else value if value is None else ""


def test_auto_increment_of_zero_stays_zero(name: str, target_server: DatabaseServer) -> None:
    """MariaDB's LOAD DATA gives it a new number if another column of the row is SET."""
    target_server.execute(SQL.replace("id INT", "id INT AUTO_INCREMENT"), db=name)
    before = _count_loads(target_server)
    run_once(target_server, apply_task(name), _stream(name, step=2), is_large=False)
    assert _count_loads(target_server) == before + 1
    found = target_server.execute(f"SELECT MIN(id), MAX(id), COUNT(*) FROM {name}.t")
    assert found == [(0, 2 * ROWS - 2, ROWS)]


def test_row_that_load_data_skips_is_a_conflict(
    name: str, target_server: DatabaseServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server reports an existing row as a warning: nothing is stored, and the conflict names the row."""
    refused: list[int] = []
    refuse = TablePlans.refuse_load

    def note(plans: TablePlans, slot: int) -> None:
        refused.append(slot)
        refuse(plans, slot)
        assert plans.load_statement(slot) is None

    monkeypatch.setattr(TablePlans, "refuse_load", note)
    target_server.execute(SQL, db=name)
    target_server.execute(f"INSERT INTO t VALUES ({LATE}, '', '')", db=name)
    with pytest.raises(Fatal) as caught:
        run_once(target_server, apply_task(name), _stream(name), is_large=False)
    assert (caught.value.code, caught.value.context["key"]) == ("MR-5010", str(LATE))
    assert len(refused) == 1
    assert target_server.execute(f"SELECT COUNT(*) FROM {name}.t") == [(1,)]


def test_value_that_load_data_would_change_is_refused(
    name: str, target_server: DatabaseServer
) -> None:
    """With LOCAL the server cuts a text that is too long; INSERT refuses it."""
    target_server.execute(SQL.replace("w VARCHAR(60)", "w VARCHAR(3)"), db=name)
    with pytest.raises(Fatal) as caught:
        run_once(target_server, apply_task(name), _stream(name), is_large=False)
    assert (caught.value.code, caught.value.context["key"]) == ("MR-5011", "100")
    assert target_server.execute(f"SELECT COUNT(*) FROM {name}.t") == [(0,)]


@pytest.mark.usefixtures("switched_on")
def test_server_without_local_infile_gets_inserts(name: str, target_server: DatabaseServer) -> None:
    """Also when it is switched off while the task runs."""
    target_server.execute(SQL, db=name)
    stream = _stream(name)
    applier = started(target_server, apply_task(name))
    before = _count_loads(target_server)
    applier.process(LocalRecords(stream.values, is_large=False), ignore)
    assert _count_loads(target_server) == before + 1
    target_server.execute("SET GLOBAL local_infile = OFF")
    first = len(stream.values)
    for number in range(ROWS, 2 * ROWS):
        stream.insert(_table(name), {"id": number, "w": "", "b": b""})
    stream.commit()
    applier.process(LocalRecords(stream.values[first:], first, is_large=False), ignore)
    applier.close()
    for number in range(2 * ROWS, 3 * ROWS):
        stream.insert(_table(name), {"id": number, "w": "", "b": b""})
    stream.commit()
    before = _count_loads(target_server)
    run_once(target_server, apply_task(name), stream, is_large=False)
    assert _count_loads(target_server) == before
    assert target_server.execute(f"SELECT COUNT(*) FROM {name}.t") == [(3 * ROWS,)]


def test_trigger_keeps_a_table_from_loading(name: str, target_server: DatabaseServer) -> None:
    """A trigger may use the user variables of the statement."""
    target_server.execute(SQL, db=name)
    trigger = "CREATE TRIGGER t_set BEFORE INSERT ON t FOR EACH ROW SET @millrace2 = '00'"
    target_server.execute(trigger, db=name)
    before = _count_loads(target_server)
    run_once(target_server, apply_task(name), _stream(name), is_large=False)
    assert _count_loads(target_server) == before


def test_file_that_the_server_asks_for_is_not_sent(
    name: str, target_server: DatabaseServer
) -> None:
    """Only ``load`` answers a request for a file. A server could ask at any statement, and for any file."""
    target_server.execute("CREATE TABLE f (w VARCHAR(200))", db=name)
    session = connect(endpoint_of(target_server))
    try:
        with pytest.raises(Fatal, match="local_infile option is false"):
            session.run(f"LOAD DATA LOCAL INFILE '/etc/hostname' INTO TABLE {name}.f".encode())
    finally:
        session.close()
    assert target_server.execute(f"SELECT COUNT(*) FROM {name}.f") == [(0,)]
