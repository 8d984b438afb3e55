"""Sessions on servers of source and target sets. The only module of ``consumer`` that uses PyMySQL.

Guarantees: every error of the driver or the server is raised as Retryable or Fatal. Affected rows are *matched*
rows (CLIENT.FOUND_ROWS), so an update that changes nothing still counts. Texts of a server may contain bytes that are
not UTF-8; they are read and sent again without loss (``_codec``). Sessions use UTC, READ COMMITTED and no autocommit.
A lost host is detected after a minute. ``commit`` can raise Retryable MR-5001 with an unknown outcome; the caller must
then read the progress on the target.

Not done here: reconnecting, retrying, pooling.
"""

import codecs
import re
import socket
import ssl
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, cast

import pymysql
from pymysql.constants import CLIENT, COMMAND, FIELD_TYPE
from pymysql.converters import encoders
from pymysql.cursors import Cursor, DictCursor, SSCursor
from pymysql.protocol import MysqlPacket, OKPacketWrapper

from drivers.mysql.errors import Kind, kind_of, server_error
from drivers.mysql.grants import privilege_fix
from millrace.errors import Fatal, MillraceError, Retryable
from millrace.text_protocol.arriving import DrainedFile
from millrace.tls import (
    UnsafeLoginError,
    UnusableAuthorityError,
    certificate_fix,
    login_fix,
    login_guards,
    unverified,
    verifying,
)
from schemas.server_version import ServerVersion

Row = tuple[object, ...]

# Integers are returned as int, all other values as the server prints them.
_INTEGERS = (
    FIELD_TYPE.TINY,
    FIELD_TYPE.SHORT,
    FIELD_TYPE.INT24,
    FIELD_TYPE.LONG,
    FIELD_TYPE.LONGLONG,
)
_CONVERSIONS: dict[Any, Any] = {**encoders, **dict.fromkeys(_INTEGERS, int)}

_ENCODING = "millrace_utf8"

CONNECT_S = 10
LOGIN_S = 30  # a stopped server process still accepts connections but does not answer
READ_S = 3600  # the next run's fence ends a hung lane; DDL has no limit (``consumer.target.running_statement``)
# A lost host does not answer either. By default the system detects it after two hours without traffic, or after a
# quarter of an hour with unacknowledged bytes. These values detect it in a minute: 4 probes, 10 s apart, after 20 s of
# silence.
KEEPALIVE_IDLE_S, KEEPALIVE_INTERVAL_S, KEEPALIVE_PROBES = 20, 10, 4
LOCK_WAIT_S = 20  # for rows and tables; a server's default for tables is a day or a year

STRICT_MODE = "NO_AUTO_VALUE_ON_ZERO,STRICT_ALL_TABLES,ALLOW_INVALID_DATES"
LENIENT_MODE = "NO_AUTO_VALUE_ON_ZERO,ALLOW_INVALID_DATES"  # only for an ENUM's index 0

_OF_SERVERS = frozenset(f"MR-{number}" for number in range(5001, 5008))

_NO_LOAD = {(1148,), (3948,), (4166,)}  # local_infile is off
_CODES = {
    Kind.UNAVAILABLE: "MR-5001",
    Kind.LOST: "MR-5001",
    Kind.READ_ONLY: "MR-5003",
    Kind.LIMITED: "MR-5004",
    Kind.LOCKED: "MR-5005",
    Kind.DISK_FULL: "MR-5006",
    Kind.LOGIN_REFUSED: "MR-5002",
    Kind.PRIVILEGE_MISSING: "MR-5007",
    Kind.CONFLICT: "MR-5010",
    Kind.NO_TABLE: "MR-5012",
    Kind.NO_COLUMN: "MR-5013",
    Kind.PACKET_TOO_LARGE: "MR-5014",
    Kind.NO_TLS: "MR-5011",  # of a session; at a login see ``connect``
    Kind.OTHER: "MR-5011",
}
_VALUE = re.compile(r"value: '.*'(?= for column |$)", re.DOTALL)  # 1366, 1292: contents of a row


@dataclass(frozen=True, slots=True)
class TlsChoice:
    """``mode`` as in the set document; an empty ``ca_path`` selects the system's trust store."""

    mode: str = "disabled"
    ca_path: str = ""


class Side(StrEnum):
    """The set of a server, where a task works with two: its errors name it."""

    SOURCE = "source"
    TARGET = "target"


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One server and the login for it. The password is never printed. ``side``: of which set, for errors."""

    host: str
    port: int
    user: str
    password: str = field(repr=False)
    tls: TlsChoice = TlsChoice()
    side: Side | None = None

    @property
    def name(self) -> str:
        """As host:port."""
        return f"{self.host}:{self.port}"


def text_of(value: object) -> str:
    """A value of a row as text."""
    return value.decode() if isinstance(value, bytes) else str(value)


def stored_text(text: str) -> str:
    r"""A text that every server can store and every terminal can print: ``\xff`` for a byte that is not UTF-8."""
    return text.encode(errors="surrogateescape").decode(errors="backslashreplace")


def _codec(name: str) -> codecs.CodecInfo | None:
    r"""UTF-8 with a lone surrogate for each byte that is not: U+DCFF for ``\xff``.

    MariaDB prints a default of bytes as they are in SHOW CREATE TABLE, and takes them back. PyMySQL has no place for
    ``errors``, only for the name of an encoding.
    """
    if name != _ENCODING:
        return None
    return codecs.CodecInfo(
        lambda text, _="strict": codecs.utf_8_encode(text, "surrogateescape"),
        lambda read, _="strict": codecs.utf_8_decode(read, "surrogateescape", True),
        name=_ENCODING,
    )


codecs.register(_codec)


class MySqlSession:
    """One session on one server."""

    def __init__(
        self, endpoint: Endpoint, *, connection: "pymysql.connections.Connection[Cursor]"
    ) -> None:
        self.endpoint = endpoint
        self.server = ""  # see ``table_state.server_of``
        self._connection = connection
        (version,), *_ = self.query("SELECT VERSION()")
        self.version = ServerVersion.parse(str(version))
        self.flavour = self.version.flavour

    @property
    def name(self) -> str:
        """The server as host:port."""
        return self.endpoint.name

    @property
    def id(self) -> int:
        """The server's id of this session, for KILL."""
        return int(self._connection.thread_id())  # type: ignore[no-untyped-call]

    def account(self) -> str:
        """The account as the server names it, such as ``millrace@%``; empty if the server does not answer."""
        return _account(self._connection)

    @property
    def is_open(self) -> bool:
        """False after it was closed or the driver found it broken."""
        return bool(self._connection.open)

    def query(self, sql: str | bytes, arguments: Sequence[object] | None = None) -> list[Row]:
        """Run one statement and return all rows. Without ``arguments`` it is sent unchanged: a % is a %."""
        with _errors(self._connection), self._connection.cursor() as cursor:
            cursor.execute(cast(str, sql), arguments)
            return list(cursor.fetchall())

    @contextmanager
    def without_limit(self) -> Iterator[None]:
        """In the block, an answer may take any time."""
        inside: Any = self._connection
        inside._read_timeout = None
        try:
            yield
        finally:
            inside._read_timeout = READ_S

    def named(self, sql: str) -> list[dict[str, object]]:
        """Run one statement and return all rows, each with the names of its columns."""
        with _errors(self._connection), self._connection.cursor(DictCursor) as cursor:
            cursor.execute(sql)
            return list(cursor.fetchall())

    def stream(self, sql: str, arguments: Sequence[object] | None = None) -> "RowStream":
        """Run one statement and read its rows as they arrive."""
        return RowStream(self._connection.cursor(SSCursor), sql, arguments)

    def with_arguments(self, sql: str, arguments: Sequence[object]) -> bytes:
        """The statement with its arguments inserted, for ``run``."""
        with self._connection.cursor() as cursor:
            return cursor.mogrify(sql, arguments).encode(errors="surrogateescape")  # for bytes

    def run(self, sql: bytes) -> int:
        """Run one statement unchanged and return the number of matched rows."""
        with _errors(self._connection):
            return self._connection.query(cast(str, sql))

    def load(self, sql: bytes, text: bytes, *, packet_bytes: int) -> bool:
        """Run LOAD DATA LOCAL with ``text`` as the file. Returns whether every line became a row without a warning.

        With LOCAL the server makes most errors warnings. False if it took nothing, because ``local_infile`` is off now.
        ``packet_bytes`` must be below the server's ``max_allowed_packet``.
        """
        loading = self.begin_load(sql)
        if loading is None:
            return False
        for first in range(0, len(text), packet_bytes):
            loading.send(text[first : first + packet_bytes])
        loading.end()
        lines = text.count(b"\n")
        return loading.answer() == Written(lines, 0, (lines, 0, 0, 0))

    def begin_load(self, sql: bytes) -> "Loading | None":
        """Run LOAD DATA LOCAL; its file follows. None if ``local_infile`` is off now."""
        inside: Any = self._connection  # PyMySQL can only send a file
        try:
            inside._execute_command(COMMAND.COM_QUERY, sql)
            packet = inside._read_packet()
        except (pymysql.Error, OSError) as exc:
            if exc.args[:1] in _NO_LOAD:
                return None
            raise _translated_with_account(exc, self._connection) from exc
        assert packet.is_load_local_packet()
        return Loading(self._connection)

    def insert(self, sql: bytes) -> "Written":
        """Run a statement that writes rows."""
        inside: Any = self._connection  # for the answer, which PyMySQL keeps inside its result
        try:
            inside._execute_command(COMMAND.COM_QUERY, sql)
            return _written(inside._read_packet())
        except (pymysql.Error, OSError) as exc:
            raise _translated_with_account(exc, self._connection) from exc

    def warnings(self, count: int) -> list[tuple[int, str]]:
        """The first warnings of the last statement: number and text, without refused values."""
        rows = self.query(f"SHOW WARNINGS LIMIT {count}")
        return [(int(str(number)), _VALUE.sub("value", str(text))) for _, number, text in rows]

    def read_packets(self, sql: bytes) -> "RowPackets":
        """Run a SELECT and leave its rows to the caller, as the packets that the server sends."""
        return RowPackets(self._connection, sql)

    def commit(self) -> None:
        """Commit. Retryable MR-5001 means that the outcome is unknown."""
        with _errors(self._connection):
            self._connection.commit()

    def rollback(self) -> None:
        """Roll back, or close if that fails: the server rolls back when a connection ends."""
        try:
            self._connection.rollback()
        except (pymysql.Error, OSError):
            self.close()

    def cut(self) -> None:
        """Shut down the socket, from any thread. A waiting call raises Retryable MR-5001 with an unknown outcome."""
        if wire := getattr(self._connection, "_sock", None):
            # SSLSocket's own shutdown would change the object that another thread waits on.
            with suppress(OSError):
                socket.socket.shutdown(wire, socket.SHUT_RDWR)

    def close(self) -> None:
        """Close; never raises."""
        try:
            self._connection.close()
        except (pymysql.Error, OSError):
            return


class RowStream:
    """The rows of one statement, as they arrive."""

    def __init__(self, cursor: Cursor, sql: str, arguments: Sequence[object] | None) -> None:
        self._cursor = cursor
        self._connection = cursor.connection
        try:
            cursor.execute(sql, arguments)
        except (pymysql.Error, OSError) as exc:
            raise _translated_with_account(exc, self._connection) from exc

    def take(self, count: int) -> list[Row]:
        """The next ``count`` rows; fewer at the end."""
        try:
            return list(self._cursor.fetchmany(count))
        except (pymysql.Error, OSError) as exc:
            raise _translated_with_account(exc, self._connection) from exc

    def close(self) -> None:
        """Read the remaining rows, unless the connection is broken, and close. Never raises."""
        if self._connection.open:
            with suppress(pymysql.Error, OSError):
                self._cursor.close()
        inside: Any = self._cursor
        if not self._connection.open and inside._result:
            # Otherwise PyMySQL, when it frees cursor and result, reads from a socket that it has released.
            inside._result.unbuffered_active = False


@dataclass(frozen=True, slots=True)
class Written:
    """The answer to a statement that writes rows.

    ``counts``: the numbers of its message. LOAD DATA: lines, deleted rows, skipped lines, warnings. INSERT of several
    rows: rows, duplicates, warnings. INSERT of one row: none.
    """

    rows: int
    warnings: int
    counts: tuple[int, ...]


def _written(packet: MysqlPacket) -> Written:
    answer: Any = OKPacketWrapper(packet)
    # such as "Records: 9  Deleted: 0  Skipped: 0  Warnings: 0", in the server's language
    counts = tuple(int(digits) for digits in re.findall(rb": *(\d+)", answer.message))
    # the packet's own count of warnings ends at 65,535
    return Written(answer.affected_rows, counts[-1] if counts else answer.warning_count, counts)


class Loading:
    """A LOAD DATA LOCAL that waits for its file. Until ``answer`` the session takes no other statement."""

    def __init__(self, connection: "pymysql.connections.Connection[Cursor]") -> None:
        self._connection: Any = connection

    def send(self, text: bytes | memoryview) -> None:
        """Send a part of the file; it must be below the server's ``max_allowed_packet``."""
        inside = self._connection  # PyMySQL would copy the text twice
        try:
            inside._write_bytes(len(text).to_bytes(3, "little") + bytes([inside._next_seq_id]))
            inside._write_bytes(text)
        except (pymysql.Error, OSError) as exc:
            raise _translated_with_account(exc, self._connection) from exc
        inside._next_seq_id = (inside._next_seq_id + 1) % 256

    def end(self) -> None:
        """End the file. The server works on its last part until ``answer``."""
        self.send(b"")

    def answer(self) -> Written:
        """Wait for the answer."""
        try:
            return _written(self._connection._read_packet())
        except (pymysql.Error, OSError) as exc:
            raise _translated_with_account(exc, self._connection) from exc


class RowPackets:
    """``millrace.text_protocol.arriving.RowPackets`` of a statement."""

    def __init__(self, connection: Any, sql: bytes) -> None:
        self._connection = connection  # PyMySQL declares little of its inside
        try:
            connection._execute_command(COMMAND.COM_QUERY, sql)
            columns = connection._read_packet().read_length_encoded_integer()
            for _ in range(columns + 1):  # and one packet after them
                connection._read_packet()
        except (pymysql.Error, OSError) as exc:
            raise _translated_with_account(exc, connection) from exc
        self.sequence = int(connection._next_seq_id)
        self._file = DrainedFile(connection._rfile)

    def read(self, room: memoryview) -> int:
        """See ``millrace.text_protocol.arriving.RowPackets``."""
        try:
            count = self._file.read(room)
        except OSError as exc:
            self._connection._force_close()
            raise _translated_with_account(exc, self._connection) from exc
        if not count:
            self._connection._force_close()
            raise Retryable("MR-5001", "the server closed the connection during a result")
        return count

    def end(self, packet: bytes) -> None:
        """See ``millrace.text_protocol.arriving.RowPackets``."""
        last: Any = MysqlPacket(packet, self._connection.encoding)
        try:
            last.check_error()
        except pymysql.Error as exc:
            raise _translated_with_account(exc, self._connection) from exc


def connect(
    endpoint: Endpoint, *, database: str | None = None, answer_s: float | None = None
) -> MySqlSession:
    """A session with the settings in the module's docstring. ``answer_s``: the limit for each answer."""
    try:
        connection = pymysql.connect(
            host=endpoint.host,
            port=endpoint.port,
            user=endpoint.user,
            password=endpoint.password.encode(),  # UTF-8; a str would be sent as latin-1
            database=database,
            charset="utf8mb4",
            autocommit=False,
            connect_timeout=CONNECT_S,
            read_timeout=answer_s or LOGIN_S,
            write_timeout=READ_S,
            # LOCAL_FILES is for ``load``. Without its own option PyMySQL refuses to send a file.
            client_flag=CLIENT.FOUND_ROWS | CLIENT.LOCAL_FILES,
            conv=_CONVERSIONS,
            init_command=(
                f"SET SESSION sql_mode='{STRICT_MODE}', time_zone='+00:00',"
                f" innodb_lock_wait_timeout={LOCK_WAIT_S}, lock_wait_timeout={LOCK_WAIT_S}"
                # MySQL can hide the primary keys that it generates; MariaDB skips this comment
                "/*!80030 , show_gipk_in_create_table_and_information_schema=1 */"
            ),
            **_tls_arguments(endpoint),
            **login_guards(
                is_encrypted=endpoint.tls.mode != "disabled",
                is_verified=endpoint.tls.mode in ("verify-ca", "verify-identity"),
            ),
        )
        # as a statement: the variable has another name before MariaDB 11.1
        connection.query("SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED")
    except (pymysql.Error, OSError) as exc:
        server = endpoint.name
        cause = getattr(exc, "original_exception", exc)
        is_untrusted = isinstance(cause, ssl.SSLCertVerificationError)
        if is_untrusted or kind_of(server_error(exc)) is Kind.NO_TLS:
            fix = certificate_fix(cause) if isinstance(cause, ssl.SSLCertVerificationError) else ""
            raise Fatal("MR-5009", f"{server}: {cause}", fix=fix, server=server) from exc
        error = translated(exc, side=endpoint.side, server=server)
        raise _placed(error, endpoint.side, server) from exc
    except (RuntimeError, ValueError) as exc:  # see ``millrace.tls``
        if fix := login_fix(exc):
            raise Fatal("MR-5002", f"{endpoint.name}: {exc}", fix=fix) from exc
        fix = "Set `tls` of the set document to verify-identity, verify-ca or require-unverified."
        if isinstance(exc, UnsafeLoginError) and endpoint.tls.mode == "require-unverified":
            fix = "Set `tls` of the set document to verify-identity or verify-ca."
        raise Fatal(
            "MR-5002", f"{endpoint.name} accepts this account's password only over TLS", fix=fix
        ) from exc
    inside: Any = connection  # for its socket and timeout, which PyMySQL does not declare
    inside._read_timeout = answer_s or READ_S
    inside.encoding = _ENCODING
    inside.side = endpoint.side  # for the errors of all its statements
    if wire := getattr(inside, "_sock", None):  # a test's server may have none
        _enable_keepalive(wire)
    return MySqlSession(endpoint, connection=connection)


def _enable_keepalive(wire: socket.socket) -> None:
    """Detect a lost host, with those of the options that the system has."""
    dead_ms = 1000 * (KEEPALIVE_IDLE_S + KEEPALIVE_PROBES * KEEPALIVE_INTERVAL_S)
    for name, value in (
        ("TCP_KEEPIDLE", KEEPALIVE_IDLE_S),
        ("TCP_KEEPINTVL", KEEPALIVE_INTERVAL_S),
        ("TCP_KEEPCNT", KEEPALIVE_PROBES),
        ("TCP_USER_TIMEOUT", dead_ms),  # for unacknowledged bytes
    ):
        if hasattr(socket, name):
            wire.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


def _tls_arguments(endpoint: Endpoint) -> dict[str, Any]:
    mode = endpoint.tls.mode
    if mode == "disabled":
        return {"ssl_disabled": True}
    if mode == "require-unverified":
        return {"ssl": unverified()}
    try:
        return {"ssl": verifying(endpoint.tls.ca_path, checks_name=mode == "verify-identity")}
    except UnusableAuthorityError as exc:
        path, server = endpoint.tls.ca_path, endpoint.name
        raise Fatal(
            "MR-5009",
            f"{server}: {exc}",
            fix=f"Copy the CA's certificate (PEM) to {path} on the machines of driver and executors, readable by them,"
            " or set `tls_ca` in the set document to the right file; then run `millrace task resume TASK`.",
            server=server,
        ) from exc


@contextmanager
def _errors(connection: "pymysql.connections.Connection[Any]") -> Iterator[None]:
    """Raises the driver's errors as Retryable or Fatal."""
    try:
        yield
    except (pymysql.Error, OSError) as exc:
        raise _translated_with_account(exc, connection) from exc
    except RuntimeError as exc:  # PyMySQL: the server asks for a file
        raise Fatal("MR-5011", str(exc)) from exc


def _translated_with_account(
    exc: Exception, connection: "pymysql.connections.Connection[Any]"
) -> MillraceError:
    """``translated``; the GRANT in the fix of a refusal names the account as the server does."""
    side = getattr(connection, "side", None)
    is_refused = kind_of(server_error(exc)) is Kind.PRIVILEGE_MISSING
    account = _account(connection) if is_refused else ""
    place = f"{connection.host}:{connection.port}" if side else ""
    return _placed(translated(exc, account=account, side=side), side, place)


def _placed(error: MillraceError, side: Side | None, name: str) -> MillraceError:
    """The error of a server itself, not of a row or statement, begins with its side and address."""
    if side and error.code in _OF_SERVERS and not error.message.startswith(side):
        error.message = f"{side} {name}: {error.message}"
    return error


def _account(connection: "pymysql.connections.Connection[Any]") -> str:
    try:
        with connection.cursor(Cursor) as cursor:
            cursor.execute("SELECT CURRENT_USER()")
            ((account,),) = cursor.fetchall()
    except (pymysql.Error, OSError):
        return ""
    return str(account)


def translated(
    exc: Exception, *, account: str = "", side: Side | None = None, **context: Any
) -> MillraceError:
    """The branch and code for an error of the driver; ``errno`` is in the context.

    ``account`` is the result of CURRENT_USER(), if known. ``side`` decides which privileges a fix names. The message is
    the server's text without the refused value; it does name a duplicate key.
    """
    error = server_error(exc)
    kind, text = kind_of(error), _VALUE.sub("value", error.text)
    code = _CODES[kind]
    if kind.is_transient:
        return Retryable(code, text, errno=error.number, **context)
    fix = ""
    if kind is Kind.PRIVILEGE_MISSING:
        fix = privilege_fix(code, text, account=account, is_source=side is Side.SOURCE)
    return Fatal(code, text, fix=fix, errno=error.number, **context)
