"""A look at a server's rows as they commit (``millrace try``): from where, in which forms, and what it says.

`test_reading_commands.py` shows that the server gets nothing that changes it.
"""

import fcntl
import json
import os
import signal
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pymysql
import pytest
from confluent_kafka import Consumer, TopicPartition

from millrace import machine_code
from millrace.cli.trial import trial as command
from millrace.cli.trial.trial import CONTINUES, Look
from millrace.deploy.servers import DatabaseServer, KafkaServer, ServerOptions
from millrace.errors import Fatal, Retryable
from millrace.home_folder import home
from millrace.producer.trial import trial as trial_module
from millrace.producer.trial.trial import RawRecords, Trial, TrialOrder, TrialPlace
from millrace.schemas.documents import TableFilter
from millrace.schemas.gtid import NO_SERVER, Flavour
from millrace.schemas.record.control import DdlRecord, RecordKind
from millrace.schemas.record.framing import peek_kind
from millrace.schemas.record.record import KnownSchemas, RowRecord, decode_record
from tests.fixtures.servers import NewServer, mostly
from tests.kit.binlog.session import Cursor, session
from tests.kit.relay.relay import login_of, member_of
from tests.kit.waiting import PATIENCE_S, eventually

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
    return shown_of(trial.batches(), count, KnownSchemas())


def shown_of(batches: Iterator[RawRecords], count: int, known: KnownSchemas) -> list[object]:
    """The next rows, as op and image, and the statements."""
    found = list[object]()
    deadline_s = time.monotonic() + PATIENCE_S
    for batch in batches:
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


def shown_id(batches: Iterator[RawRecords], known: KnownSchemas) -> object:
    """The id of the next row."""
    (record,) = shown_of(batches, 1, known)
    assert isinstance(record, tuple)
    return record[1]["id"]


@contextmanager
def loading(server: DatabaseServer) -> Iterator[Cursor]:
    """A session that may load a file of the client."""
    with session(server) as cursor:
        cursor.execute("SET GLOBAL local_infile = ON")
        with pymysql.connect(
            unix_socket=str(server.socket),
            user="root",
            autocommit=True,
            ssl_disabled=True,
            local_infile=True,
        ) as loader:
            yield loader.cursor()
        cursor.execute("SET GLOBAL local_infile = DEFAULT")


def begin_xa(cursor: Cursor, xid: str, number: int) -> None:
    """Prepare an XA transaction with one row."""
    cursor.execute(f"XA START '{xid}'")
    cursor.execute(f"INSERT INTO {NAME}.t (id) VALUES ({number})")
    cursor.execute(f"XA END '{xid}'")
    cursor.execute(f"XA PREPARE '{xid}'")


def end_dump(cursor: Cursor) -> int:
    """End the dumps of the server that the look uses, as a network may; their number."""
    cursor.execute(
        "SELECT ID FROM information_schema.processlist WHERE COMMAND LIKE 'Binlog Dump%'"
    )
    dumps = [number for (number,) in cursor.fetchall()]
    for number in dumps:
        cursor.execute(f"KILL {number}")
    return len(dumps)


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


def test_missing_database_is_reported(single_server: DatabaseServer) -> None:
    """The look waits for its rows all the same. An account that sees no database at all reports nothing."""
    absent = order(single_server)
    absent = replace(absent, filter=TableFilter(include=("absent.*",)))
    with table(single_server), Trial.open(absent) as trial:
        assert next(trial.batches()) is not None
        (note,) = trial.notes
    assert note.startswith("no database absent exists now")


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


@pytest.mark.both_flavours
def test_load_data_in_statement_format_is_shown(
    single_server: DatabaseServer, tmp_path: Path
) -> None:
    """As its SQL; one that was seen already is skipped."""
    path = tmp_path / "rows"
    path.write_text("7\tx\t1\ta\n")
    load = f"LOAD DATA LOCAL INFILE '{path}' INTO TABLE t"
    with table(single_server) as cursor, loading(single_server) as loader:
        after = single_server.gtid_position()
        loader.execute("SET SESSION binlog_format = 'STATEMENT'")
        loader.execute(f"USE {NAME}")
        loader.execute(load)
        loaded = single_server.gtid_position()
        insert(cursor)
        with Trial.open(order(single_server, after)) as trial:
            statement, *rows = shown(trial, 3)
        assert str(statement).startswith(f"LOAD DATA LOCAL INFILE '{path}' ")
        assert rows == [("c", row(0)), ("c", row(1))]
        with Trial.open(order(single_server, loaded)) as trial:
            assert shown(trial, 2) == rows


@pytest.mark.both_flavours
def test_rows_prepared_before_the_look_are_reported_as_unknown(
    single_server: DatabaseServer,
) -> None:
    """A line names the XA transaction. One that is prepared later is shown, also after a lost connection."""
    with (
        table(single_server) as cursor,
        session(single_server) as early,
        session(single_server) as late,
    ):
        begin_xa(early, "early", 8)
        with Trial.open(order(single_server)) as trial:
            begin_xa(late, "late", 9)
            insert(cursor)
            batches, known = trial.batches(), KnownSchemas()
            assert shown_of(batches, 2, known) == [("c", row(0)), ("c", row(1))]
            cursor.execute("FLUSH BINARY LOGS")
            end_dump(cursor)
            early.execute("XA COMMIT 'early'")
            late.execute("XA COMMIT 'late'")
            nine = {"id": "9", "v": None, "w": None, "e": None}
            assert shown_of(batches, 1, known) == [("c", nine)]
    (unknown,) = (line for line in trial.notes if "XA" in line)
    assert unknown.endswith("was prepared before: its rows are unknown")


@pytest.mark.both_flavours
def test_lost_connection_is_made_again(single_server: DatabaseServer) -> None:
    """At the place where the look was: in the middle of a file, and after the end of one. No row twice, none lost."""
    with table(single_server) as cursor, Trial.open(order(single_server)) as trial:
        batches, known, ids = trial.batches(), KnownSchemas(), list[object]()
        for number in range(1, 5):
            cursor.execute("INSERT INTO t (id) VALUES (%s)", (10 * number,))
            ids.append(shown_id(batches, known))
            assert end_dump(cursor) == 1
            if number % 2:
                cursor.execute("FLUSH BINARY LOGS")
            cursor.execute("INSERT INTO t (id) VALUES (%s)", (10 * number + 1,))
            ids.append(shown_id(batches, known))
    assert ids == ["10", "11", "20", "21", "30", "31", "40", "41"]
    again = [line for line in trial.notes if line.startswith("reads ")]
    assert again == [f"reads {member_of(single_server)} again, after the last row shown"] * 4


@mostly(Flavour.MARIADB)
def test_look_continues_when_the_server_has_restarted(
    flavour: Flavour, new_server: NewServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It ends with the error and the GTID set when the server stays away."""
    server = new_server(flavour)
    with session(server) as cursor:
        cursor.execute(f"CREATE DATABASE {NAME}")
        cursor.execute(f"CREATE TABLE {NAME}.{TABLE.removeprefix('CREATE TABLE ')}")
    with Trial.open(order(server)) as trial:
        batches, known = trial.batches(), KnownSchemas()
        with session(server) as cursor:
            cursor.execute(f"INSERT INTO {NAME}.t (id) VALUES (1)")
        assert shown_id(batches, known) == "1"
        server.stop()
        assert next(batches) == ()
        server.start()
        with session(server) as cursor:
            cursor.execute(f"INSERT INTO {NAME}.t (id) VALUES (2)")
        assert shown_id(batches, known) == "2"
        after = server.gtid_position()
        monkeypatch.setattr(trial_module, "RECONNECT_S", 2.0)
        server.stop()
        with pytest.raises(Retryable) as caught:
            shown_of(batches, 1, known)
        assert caught.value.code in ("MR-1001", "MR-1006")
        assert str(trial.position) == after


def test_server_without_gtids_is_shown(new_server: NewServer) -> None:
    """As MySQL is by default. Another connection continues, also another process; no row twice, none lost."""
    modes = ("--gtid-mode=OFF", "--enforce-gtid-consistency=OFF", "--binlog-row-metadata=MINIMAL")
    server = new_server("mysql", options=ServerOptions(extra=modes))
    with table(server) as cursor:
        with Trial.open(order(server)) as trial:
            insert(cursor)
            assert shown(trial, 2) == [("c", row(0)), ("c", row(1))]
            assert [finding.code for finding in trial.findings] == ["MR-1014", "MR-1016"]
            batches, known = trial.batches(), KnownSchemas()
            assert end_dump(cursor) == 1
            cursor.execute("FLUSH BINARY LOGS")
            cursor.execute("INSERT INTO t (id) VALUES (3)")
            assert shown_id(batches, known) == "3"
            assert trial.can_continue
            place = trial.place
        assert place.position == f"{NO_SERVER}:1-3"
        cursor.execute("INSERT INTO t (id) VALUES (4)")
        with Trial.open(replace(order(server), place=place)) as trial:
            assert shown_id(trial.batches(), KnownSchemas()) == "4"
            assert str(trial.position) == f"{NO_SERVER}:1-4"
        cursor.execute("RESET BINARY LOGS AND GTIDS")
        with pytest.raises(Fatal, match="not the bytes that follow") as caught:
            Trial.open(replace(order(server), place=place)).__enter__()
        assert caught.value.code == "MR-1016"


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


@pytest.mark.parametrize("after_s", [0.0, 0.3, 1.0, 3.0])
def test_interrupt_ends_quietly_at_any_moment(
    single_server: DatabaseServer, after_s: float
) -> None:
    """Also during imports. The documents are shown once the rows are."""
    with trying(single_server, PYTHONPROFILEIMPORTTIME="1") as process:
        assert process.stderr is not None
        while "millrace.cli.exits" not in process.stderr.readline():
            pass
        time.sleep(after_s)
        process.send_signal(signal.SIGINT)
        output, errors = process.communicate(timeout=PATIENCE_S)
    said = [line for line in errors.splitlines() if not line.startswith("import time:")]
    is_reading = any(line.startswith("from ") for line in said)
    assert output == ""
    assert not any("Traceback" in line or "ignored" in line for line in said)
    assert process.returncode in ((0, 130) if is_reading else (130,))
    assert any(line == "kind: capture" for line in said) == (process.returncode == 0)


def test_interrupt_in_the_password_prompt_restores_the_terminal(
    single_server: DatabaseServer,
) -> None:
    """It shows again what is typed."""
    leader, terminal = os.openpty()
    url = f"mysql://{single_server.user}@127.0.0.1:{single_server.port}"
    environment = {name: value for name, value in os.environ.items() if name != "MYSQL_PWD"}
    process = subprocess.Popen(
        (sys.executable, "-m", "millrace", "try", url),
        env=environment,
        stdin=terminal,
        stdout=terminal,
        stderr=terminal,
        start_new_session=True,
        preexec_fn=lambda: fcntl.ioctl(terminal, termios.TIOCSCTTY, 0),  # noqa: PLW1509
    )
    printed = b""
    while b"Password" not in printed:
        printed += os.read(leader, 4096)
    eventually(lambda: not termios.tcgetattr(terminal)[3] & termios.ECHO)
    os.write(leader, b"\x03")
    assert process.wait(PATIENCE_S) == 130
    assert termios.tcgetattr(terminal)[3] & termios.ECHO
    printed += os.read(leader, 4096)
    assert b"Traceback" not in printed
    os.close(leader)
    os.close(terminal)


def test_interrupt_waits_for_the_process_that_takes_over() -> None:
    """It comes between the two, where Python would print a traceback."""
    later = (
        "from millrace.process.signals import *\n"
        "with ending_at_interrupt(lambda: 7): release_interrupts()\n"
    )
    first = (
        "import os, signal, sys\n"
        "from millrace.process.signals import held_interrupts\n"
        "with held_interrupts():\n"
        "    os.kill(os.getpid(), signal.SIGINT)\n"
        f"    os.execv(sys.executable, [sys.executable, '-c', {later!r}])\n"
    )
    ended = subprocess.run([sys.executable, "-c", first], capture_output=True, check=False)
    assert (ended.returncode, ended.stderr) == (7, b"")


def test_closed_pipe_ends_the_look(single_server: DatabaseServer) -> None:
    """At once, also if no further row comes. No documents are printed then."""
    with table(single_server) as cursor:
        after = single_server.gtid_position()
        insert(cursor)
        with trying(single_server, "--from", after) as process:
            assert process.stdout is not None
            assert process.stderr is not None
            assert process.stdout.readline()
            process.stdout.close()
            errors = process.stderr.read()
            assert process.wait(PATIENCE_S) == 141
    assert "Traceback" not in errors
    assert "kind: capture" not in errors


def test_process_with_machine_code_takes_over(
    single_server: DatabaseServer, tmp_path: Path
) -> None:
    """A home without the mark of the compiled kernels, but with their machine code: compiling takes seconds."""
    kernels = tmp_path / "kernels"
    kernels.mkdir()
    for path in (home() / "kernels").iterdir():
        if path.is_dir():
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


@pytest.mark.parametrize(
    ("batch", "is_behind", "is_replaced"),
    [((), False, True), ([(None, b"a row")], True, True), ([(None, b"a row")], False, False)],
)
def test_machine_code_takes_over_after_a_batch(
    monkeypatch: pytest.MonkeyPatch,
    batch: RawRecords,
    is_behind: bool,
    is_replaced: bool,
) -> None:
    """In a quiet moment, or if rows commit faster than they are shown; and not before the batch is shown."""
    monkeypatch.setenv(machine_code.INTERPRETED, "1")
    monkeypatch.setattr(machine_code, "is_compiled", lambda: True)
    monkeypatch.setattr(command, "is_output_closed", lambda: False)
    done = list[object]()
    monkeypatch.setattr(Look, "replace_process", lambda _, password: done.append(password))
    trial = SimpleNamespace(
        batches=lambda: iter([batch]),
        place=TrialPlace("binlog.000001", 4, "", "a server", 0),
        guessed=(),
        notes=(),
        can_continue=True,
        is_behind=is_behind,
    )
    for shown in command.batches(
        cast("Trial", trial), Look(), "secret", is_for_good=False, is_interrupted=lambda: False
    ):
        done.append(shown)
    assert done == ([batch, "secret"] if is_replaced else [batch])


def test_look_continues_in_a_source_transaction(single_server: DatabaseServer) -> None:
    """Another look, as of the process that takes over, shows no row of it again."""
    known, count = KnownSchemas(), 8 * trial_module.ROWS_MAX
    with table(single_server) as cursor:
        asked = order(single_server, single_server.gtid_position())
        values = ", ".join(f"({number})" for number in range(count))
        cursor.execute(f"INSERT INTO t (id) VALUES {values}")
        with Trial.open(asked) as trial:
            first = list[object]()
            for ids in _ids(trial.batches(), known):
                first += ids
                if trial.is_behind:
                    break
            place = trial.place
        assert place.open is not None
        with Trial.open(replace(asked, place=place)) as trial:
            later = next(ids for ids in _ids(trial.batches(), known) if ids)
    assert [*first, *later] == list(range(len(first) + len(later)))


def _ids(batches: Iterator[RawRecords], known: KnownSchemas) -> Iterator[list[object]]:
    """The ids of the rows of each batch."""
    for batch in batches:
        records = [decode_record(key, value, known) for key, value in batch]
        rows = (record.change.after for record in records if isinstance(record, RowRecord))
        yield [row["id"] for row in rows if row]


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
