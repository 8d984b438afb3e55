"""A look at a server's rows as they commit (``millrace try``): from where, in which forms, and what it says.

`test_reading_commands.py` shows that the server gets nothing that changes it.
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition

from millrace.cli.trial.trial import CONTINUES
from millrace.deploy.servers import DatabaseServer, KafkaServer, ServerOptions
from millrace.errors import Fatal
from millrace.home_folder import home
from millrace.producer.trial.trial import Trial, TrialOrder
from millrace.schemas.documents import TableFilter
from millrace.schemas.gtid import Flavour
from millrace.schemas.record.control import DdlRecord, RecordKind
from millrace.schemas.record.framing import peek_kind
from millrace.schemas.record.record import KnownSchemas, RowRecord, decode_record
from tests.fixtures.servers import NewServer, mostly
from tests.kit.binlog.session import Cursor, session
from tests.kit.relay.relay import login_of, member_of
from tests.kit.waiting import PATIENCE_S

NAME = "looked_at"
TABLE = (
    "CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR(20), w DECIMAL(6,2) UNSIGNED, e ENUM('a','b'))"
)
ROWS = ((1, "ü", "1.50", "b"), (2, None, None, None))


@contextmanager
def table(server: DatabaseServer) -> Iterator[Cursor]:
    """A session in a new database with the table, which is dropped."""
    with session(server) as cursor:
        cursor.execute(f"CREATE DATABASE {NAME}")
        cursor.execute(f"USE {NAME}")
        cursor.execute(TABLE)
        yield cursor
        cursor.execute(f"DROP DATABASE {NAME}")


def insert(cursor: Cursor) -> None:
    """Insert the rows, each in its own source transaction."""
    for row in ROWS:
        cursor.execute("INSERT INTO t VALUES (%s, %s, %s, %s)", row)


def order(server: DatabaseServer, after: str = "") -> TrialOrder:
    """A look at the database."""
    tables = TableFilter(include=(f"{NAME}.*",))
    return TrialOrder((member_of(server),), login_of(server), tables, after)


def shown(trial: Trial, count: int) -> list[object]:
    """The first rows, as op and image, and the statements."""
    known, found = KnownSchemas(), list[object]()
    deadline_s = time.monotonic() + PATIENCE_S
    for batch in trial.batches():
        for key, value in batch:
            record = decode_record(key, value, known)
            if isinstance(record, RowRecord):
                change = record.change
                image = change.after or change.before or {}
                found.append((change.op, {name: _text(one) for name, one in image.items()}))
            elif isinstance(record, DdlRecord):
                found.append(record.statement.sql)
        if len(found) >= count:
            return found
        assert time.monotonic() < deadline_s, found
    raise AssertionError(found)


def is_row(value: bytes) -> bool:
    """Whether a record has a row."""
    return peek_kind(value) is RecordKind.ROW


def _text(value: object) -> str | None:
    return None if value is None else str(value)


def row(number: int) -> dict[str, str | None]:
    """A row as ``shown`` returns it."""
    return {
        name: _text(value) for name, value in zip(("id", "v", "w", "e"), ROWS[number], strict=True)
    }


@contextmanager
def trying(
    server: DatabaseServer, *options: str, **environment: str
) -> Iterator["subprocess.Popen[str]"]:
    """The command, and its output."""
    url = f"mysql://{server.user}@127.0.0.1:{server.port}/{NAME}"
    variables = {**os.environ, "MYSQL_PWD": server.password, **environment}
    pipe = subprocess.PIPE
    command = (sys.executable, "-m", "millrace", "try", url, *options)
    with subprocess.Popen(command, env=variables, stdout=pipe, stderr=pipe, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def tried(server: DatabaseServer, *options: str, **environment: str) -> tuple[str, str]:
    """Its output and its errors, when it has ended by itself."""
    with trying(server, *options, **environment) as process:
        output, errors = process.communicate(timeout=PATIENCE_S)
        assert process.returncode == 0, errors
    return output, errors


@pytest.mark.both_flavours
def test_rows_are_shown_from_now_on(single_server: DatabaseServer) -> None:
    """Also after a statement that changes the table, and in the next file."""
    with table(single_server) as cursor:
        cursor.execute("INSERT INTO t (id) VALUES (0)")
        with Trial.open(order(single_server)) as trial:
            insert(cursor)
            cursor.execute("ALTER TABLE t DROP COLUMN w")
            cursor.execute("UPDATE t SET v = 'x' WHERE id = 2")
            cursor.execute("FLUSH BINARY LOGS")
            cursor.execute("DELETE FROM t WHERE id = 2")
            records = shown(trial, 5)
    last = {"id": "2", "v": "x", "e": None}
    alter = "ALTER TABLE t DROP COLUMN w"
    assert records == [("c", row(0)), ("c", row(1)), alter, ("u", last), ("d", last)]


def test_look_begins_after_a_gtid_set(single_server: DatabaseServer) -> None:
    """It shows what was committed before."""
    with table(single_server) as cursor:
        after = single_server.gtid_position()
        insert(cursor)
        with Trial.open(order(single_server, after)) as trial:
            assert shown(trial, 2) == [("c", row(0)), ("c", row(1))]


def test_rows_before_an_error_are_shown(single_server: DatabaseServer) -> None:
    """The error comes after them, though all were read at once; a look can begin after its place."""
    with table(single_server) as cursor:
        after = single_server.gtid_position()
        insert(cursor)
        shown_before = single_server.gtid_position()
        cursor.execute("SET SESSION binlog_row_image = 'MINIMAL'")
        cursor.execute("UPDATE t SET v = 'x' WHERE id = 1")
        with Trial.open(order(single_server, after)) as trial:
            rows = list[object]()
            with pytest.raises(Fatal) as caught:
                rows.extend(
                    value for batch in trial.batches() for _, value in batch if is_row(value)
                )
            assert (caught.value.code, len(rows)) == ("MR-6504", len(ROWS))
            assert str(trial.position) == shown_before


@mostly(Flavour.MYSQL)
def test_names_come_from_the_catalogue(flavour: Flavour, new_server: NewServer) -> None:
    """With the default of the server, table maps have no names. Those of a table that was changed since are refused."""
    default = "MINIMAL" if flavour is Flavour.MYSQL else "NO_LOG"
    options = ServerOptions(extra=(f"--binlog-row-metadata={default}",))
    server = new_server(flavour, options=options)
    with table(server) as cursor, Trial.open(order(server)) as trial:
        insert(cursor)
        assert shown(trial, 2) == [("c", row(0)), ("c", row(1))]
        assert trial.guessed == [f"{NAME}.t"]
        assert [finding.code for finding in trial.findings] == ["MR-1014"]


def test_change_in_statement_format_is_shown_as_sql(single_server: DatabaseServer) -> None:
    """It does not end the look, as it would end a task."""
    statement = "UPDATE t SET v = 'y' WHERE id > 0"
    with table(single_server) as cursor, Trial.open(order(single_server)) as trial:
        insert(cursor)
        cursor.execute("SET SESSION binlog_format = 'STATEMENT'")
        cursor.execute(statement)
        cursor.execute("SET SESSION binlog_format = 'ROW'")
        cursor.execute("DELETE FROM t WHERE id = 2")
        records = shown(trial, 4)
    assert records[2:] == [statement, ("d", {**row(1), "v": "y"})]


def test_python_functions_show_what_machine_code_shows(single_server: DatabaseServer) -> None:
    """Line by line, for a person and as JSON; and the documents of a task at the end."""
    with table(single_server) as cursor:
        after = single_server.gtid_position()
        insert(cursor)
        cursor.execute("UPDATE t SET w = 2, e = NULL WHERE id = 1")
        options = ("--from", after, "-n", "3")
        compiled, said = tried(single_server, *options)
        assert tried(single_server, *options, NUMBA_DISABLE_JIT="1")[0] == compiled
        plain, _ = tried(single_server, *options, "--json")
        assert tried(single_server, *options, "--json", NUMBA_DISABLE_JIT="1")[0] == plain
    first, _, third = compiled.splitlines()
    assert first[12:] == f" + {NAME}.t id=1  v: ü, w: 1.50, e: b"
    assert third[12:] == f" ~ {NAME}.t id=1  w: 1.50 → 2.00, e: b → NULL"
    assert [json.loads(line)["op"] for line in plain.splitlines()] == ["c", "c", "u"]
    assert f"reads 127.0.0.1:{single_server.port} (primary" in said
    assert single_server.password not in said
    assert f"include:\n- {NAME}.*" in said


def test_process_with_machine_code_takes_over(
    single_server: DatabaseServer, tmp_path: Path
) -> None:
    """A home without the mark of the compiled kernels, but with their machine code: compiling takes seconds."""
    kernels = tmp_path / "kernels"
    kernels.mkdir()
    for path in (home() / "kernels").iterdir():
        if not path.name.endswith(".compiled"):
            (kernels / path.name).symlink_to(path)
    with (
        table(single_server) as cursor,
        trying(single_server, "-n", "3", "--json", MILLRACE_HOME=str(tmp_path)) as process,
    ):
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stderr.readline().startswith("reads ")
        cursor.execute("INSERT INTO t (id) VALUES (1)")
        lines = [process.stdout.readline()]
        deadline_s = time.monotonic() + PATIENCE_S
        while not list(kernels.glob("*.compiled")):
            assert time.monotonic() < deadline_s
            time.sleep(0.1)
        environment = Path(f"/proc/{process.pid}/environ")
        while f"{CONTINUES}=".encode() not in environment.read_bytes():
            assert time.monotonic() < deadline_s
            time.sleep(0.1)
        cursor.execute("INSERT INTO t (id) VALUES (2), (3)")
        lines += [process.stdout.readline() for _ in range(2)]
        output, errors = process.communicate(timeout=PATIENCE_S)
        assert (process.returncode, output) == (0, ""), errors
    assert [json.loads(line)["after"]["id"] for line in lines] == [1, 2, 3]
    assert "3 rows of 1 table" in errors


def test_records_of_a_format_are_shown_and_sent(
    single_server: DatabaseServer, kafka: KafkaServer
) -> None:
    """The terminal and the topic have the same records."""
    topic = f"try-{single_server.flavour}"
    with table(single_server) as cursor:
        after = single_server.gtid_position()
        insert(cursor)
        cursor.execute("DELETE FROM t WHERE id = 2")
        options = ("--from", after, "-n", "4", "--as", "debezium-json")
        output, _ = tried(single_server, *options, "--to-kafka", kafka.bootstrap, "--topic", topic)
    records = [json.loads(line) for line in output.splitlines()]
    assert [one["topic"] for one in records] == [f"{NAME}.t"] * 4
    assert [one["key"] for one in records] == [{"id": 1}, {"id": 2}, {"id": 2}, {"id": 2}]
    assert [one["value"] and one["value"]["op"] for one in records] == ["c", "c", "d", None]
    settings = {"bootstrap.servers": kafka.bootstrap, "group.id": "try"}
    consumer = Consumer({**settings, "isolation.level": "read_committed"})
    consumer.assign([TopicPartition(topic, 0, 0)])
    sent: list[object] = []
    while len(sent) < len(records):
        message = consumer.poll(PATIENCE_S)
        assert message is not None
        assert message.error() is None
        sent.append(tuple(part and json.loads(part) for part in (message.key(), message.value())))
    consumer.close()
    assert sent == [(one["key"], one["value"]) for one in records]
