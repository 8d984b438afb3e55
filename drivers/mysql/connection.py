"""Sessions on servers of source and target sets. The only module that uses PyMySQL, and what is inside of it.

Guarantees: every error of the driver or the server is raised as Retryable or Fatal, with the caller's code for its
kind (``ErrorCodes``) and its number as ``errno``. No text contains the password, and in a verifying mode none is sent
before the certificate is verified. Affected rows are *matched* rows (CLIENT.FOUND_ROWS), so an update that changes
nothing still counts. Texts of a server may contain bytes that are not UTF-8; they are read and sent again without loss
(``_codec``). Sessions use UTC and READ COMMITTED, but for plain ones (``connect``). A lost host is detected after a
minute. A ``commit`` that loses the connection has an unknown outcome; the caller must then read the progress on the
target.

Not done here: reconnecting, retrying, pooling, and which statements to send.
"""

import codecs
import re
import socket
import ssl
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Self, TypeAlias, cast

import pymysql
from pymysql.constants import CLIENT, COMMAND, FIELD_TYPE
from pymysql.converters import encoders
from pymysql.cursors import Cursor, DictCursor, SSCursor
from pymysql.protocol import MysqlPacket, OKPacketWrapper

from millrace.drivers.mysql.errors import (
    APPLY_CODES,
    LOST_IN_ANSWER,
    OF_SERVERS,
    ErrorCodes,
    Kind,
    kind_of,
    server_error,
)
from millrace.drivers.mysql.grants import privilege_fix
from millrace.errors import Fatal, MillraceError, Retryable
from millrace.schemas.documents import Member, Tls, TlsMode
from millrace.schemas.gtid import Flavour
from millrace.schemas.server_version import ServerVersion
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

Row = tuple[object, ...]
Value: TypeAlias = str | int | None
NamedRow: TypeAlias = dict[str, Value]  # by column

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

_NO_LOAD = {1148, 3948, 4166}  # local_infile is off
_VALUE = re.compile(r"value: '.*'(?= for column |$)", re.DOTALL)  # 1366, 1292: contents of a row


NO_TLS = Tls(TlsMode.DISABLED)


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
    tls: Tls = NO_TLS
    side: Side | None = None

    @property
    def name(self) -> str:
        return f"{self.host}:{self.port}"

    @property
    def member(self) -> Member:
        """The server as its set's document names it."""
        return Member(self.host, self.port)


def text_of(value: object) -> str:
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
    """One session on one server. Used by one thread; only ``cut`` may be called from another one."""

    def __init__(
        self,
        endpoint: Endpoint,
        *,
        connection: "pymysql.connections.Connection[Cursor]",
        codes: ErrorCodes = APPLY_CODES,
    ) -> None:
        self.endpoint = endpoint
        self.server = ""  # see ``table_state.server_of``
        self._version_text = ""
        self._codes = codes
        self._connection = connection
        # The command and packet layer, which PyMySQL's type does not declare.
        self._inside: Any = connection
        self._is_streaming = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def version_text(self) -> str:
        """Asked for once. With Python 3.11's cached_property, a silent server would block sessions on all others."""
        if not self._version_text:
            ((version,),) = self.query("SELECT VERSION()")
            self._version_text = str(version)
        return self._version_text

    @property
    def version(self) -> ServerVersion:
        return ServerVersion.parse(self.version_text)

    @property
    def flavour(self) -> Flavour:
        return self.version.flavour

    @property
    def member(self) -> Member:
        """The server as its set's document names it."""
        return self.endpoint.member

    @property
    def name(self) -> str:
        return self.endpoint.name

    @property
    def id(self) -> int:
        """The server's id of this session, for KILL."""
        return int(self._connection.thread_id())  # type: ignore[no-untyped-call]

    def account(self) -> str:
        """The account as the server names it, such as ``millrace@%``; empty if the server does not answer."""
        try:
            with self._connection.cursor(Cursor) as cursor:
                cursor.execute("SELECT CURRENT_USER()")
                ((account,),) = cursor.fetchall()
        except (pymysql.Error, OSError):
            return ""
        return text_of(account)

    @property
    def is_open(self) -> bool:
        """False after it was closed or the driver found it broken."""
        return bool(self._connection.open)

    def query(self, sql: str | bytes, arguments: Sequence[object] | None = None) -> list[Row]:
        """Run one statement and return all rows. Without ``arguments`` it is sent unchanged: a % is a %."""
        with self.errors(), self._connection.cursor() as cursor:
            cursor.execute(cast(str, sql), arguments)
            return list(cursor.fetchall())

    def named(self, sql: str, arguments: Sequence[object] | None = None) -> list[NamedRow]:
        """Run one statement and return all rows, each with the names of its columns. For statements that people read.

        U+FFFD replaces bytes that are not UTF-8. Servers show statements (from the binlog, or in the last error of a
        replica) in the encoding of the client that sent them.
        """
        with self.errors(), self._connection.cursor(DictCursor) as cursor:
            cursor.execute(sql, arguments or None)
            return [
                {name: _shown(value) for name, value in row.items()} for row in cursor.fetchall()
            ]

    @contextmanager
    def without_limit(self) -> Iterator[None]:
        """In the block, an answer may take any time."""
        limit_s, self._inside._read_timeout = self._inside._read_timeout, None
        try:
            yield
        finally:
            self._inside._read_timeout = limit_s

    def stream(self, sql: str, arguments: Sequence[object] | None = None) -> "RowStream":
        """Run one statement and read its rows as they arrive."""
        return RowStream(self, self._connection.cursor(SSCursor), sql, arguments)

    def with_arguments(self, sql: str, arguments: Sequence[object]) -> bytes:
        with self._connection.cursor() as cursor:
            return cursor.mogrify(sql, arguments).encode(errors="surrogateescape")  # for bytes

    def run(self, sql: bytes) -> int:
        """Run one statement unchanged and return the number of matched rows."""
        with self.errors():
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
        try:
            packet = self.command(COMMAND.COM_QUERY, sql)  # PyMySQL can only send a file
        except MillraceError as error:
            if error.errno in _NO_LOAD:
                return None
            raise
        assert packet.is_load_local_packet()
        return Loading(self)

    def insert(self, sql: bytes) -> "Written":
        """Run a statement that writes rows."""
        # PyMySQL would keep the answer inside its result
        return _written(self.command(COMMAND.COM_QUERY, sql))

    def warnings(self, count: int) -> list[tuple[int, str]]:
        """The first warnings of the last statement: number and text, without refused values."""
        rows = self.query(f"SHOW WARNINGS LIMIT {count}")
        return [(int(str(number)), _VALUE.sub("value", str(text))) for _, number, text in rows]

    def read_packets(self, sql: str | bytes) -> "RowPackets":
        """Run a SELECT and leave its rows to the caller, as the packets that the server sends."""
        return RowPackets(self, sql)

    def commit(self) -> None:
        """Commit. Retryable with the code for a lost connection means that the outcome is unknown."""
        with self.errors():
            self._connection.commit()

    def rollback(self) -> None:
        """Roll back, or close if that fails: the server rolls back when a connection ends."""
        try:
            self._connection.rollback()
        except (pymysql.Error, OSError):
            self.close()

    def command(self, number: int, payload: bytes | str) -> Any:
        """Send a command of the protocol and return the first packet of its answer, as PyMySQL has it."""
        with self.errors():
            self._inside._execute_command(number, payload)
            return self._inside._read_packet()

    def start_stream(self, number: int, payload: bytes) -> socket.socket:
        """Send a command whose answer is an endless stream, and return the socket to read it from.

        The driver's buffer is empty, because the server sends only after a command. Keep this object alive.
        """
        with self.errors():
            self._inside._execute_command(number, payload)
        self._is_streaming = True
        return cast(socket.socket, self._inside._sock)

    def cut(self) -> None:
        """Shut down the socket, from any thread. A waiting call raises Retryable, with an unknown outcome."""
        if wire := getattr(self._connection, "_sock", None):
            # SSLSocket's own shutdown would change the object that another thread waits on.
            with suppress(OSError):
                socket.socket.shutdown(wire, socket.SHUT_RDWR)

    def close(self) -> None:
        if self._is_streaming:  # the server does not read that the session ends
            self._inside._force_close()
            return
        with suppress(pymysql.Error, OSError):
            self._connection.close()

    @contextmanager
    def errors(self) -> Iterator[None]:
        """Raises the driver's errors as Retryable or Fatal."""
        try:
            yield
        except (pymysql.Error, OSError) as exc:
            raise self._translated(exc) from exc
        except RuntimeError as exc:  # PyMySQL: the server asks for a file
            raise Fatal(self._codes.kinds[Kind.OTHER], f"{self.endpoint.name}: {exc}") from exc

    def _translated(self, exc: Exception) -> MillraceError:
        """``translated``; the GRANT in the fix of a refusal names the account as the server does."""
        error = server_error(exc)
        is_refused = kind_of(error, in_session=True) is Kind.PRIVILEGE_MISSING
        account = self.account() if is_refused else ""
        return translated(
            exc, self._codes, endpoint=self.endpoint, account=account, in_session=True
        )


def _shown(value: Any) -> Value:
    if isinstance(value, str):
        value = value.encode(errors="surrogateescape")
    return value.decode(errors="replace") if isinstance(value, bytes) else cast(Value, value)


class RowStream:
    """The rows of one statement, as they arrive."""

    def __init__(
        self, session: MySqlSession, cursor: Cursor, sql: str, arguments: Sequence[object] | None
    ) -> None:
        self._session = session
        self._cursor = cursor
        with session.errors():
            cursor.execute(sql, arguments)

    def take(self, count: int) -> list[Row]:
        with self._session.errors():
            return list(self._cursor.fetchmany(count))

    def close(self) -> None:
        """Read the remaining rows, unless the connection is broken, and close. Never raises."""
        if self._session.is_open:
            with suppress(pymysql.Error, OSError):
                self._cursor.close()
        inside: Any = self._cursor
        if not self._session.is_open and inside._result:
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

    def __init__(self, session: MySqlSession) -> None:
        self._session = session

    def send(self, text: bytes | memoryview) -> None:
        """Send a part of the file; it must be below the server's ``max_allowed_packet``."""
        inside = self._session._inside  # PyMySQL would copy the text twice
        with self._session.errors():
            inside._write_bytes(len(text).to_bytes(3, "little") + bytes([inside._next_seq_id]))
            inside._write_bytes(text)
        inside._next_seq_id = (inside._next_seq_id + 1) % 256

    def end(self) -> None:
        """End the file. The server works on its last part until ``answer``."""
        self.send(b"")

    def answer(self) -> Written:
        with self._session.errors():
            return _written(self._session._inside._read_packet())


class RowPackets:
    """``millrace.text_protocol.arriving.RowPackets`` of a statement."""

    def __init__(self, session: MySqlSession, sql: str | bytes) -> None:
        self._session = session
        inside = session._inside
        head = session.command(COMMAND.COM_QUERY, sql)
        with session.errors():
            if head.is_load_local_packet():
                raise RuntimeError("the server asks for a file")
            for _ in range(
                head.read_length_encoded_integer() + 1
            ):  # columns, and one packet after them
                inside._read_packet()
        self.sequence = int(inside._next_seq_id)
        self._file = DrainedFile(inside._rfile)

    def read(self, room: memoryview) -> int:
        inside = self._session._inside
        try:
            count = self._file.read(room)
        except OSError as exc:
            inside._force_close()
            raise self._session._translated(exc) from exc
        if not count:
            inside._force_close()
            with self._session.errors():
                raise pymysql.OperationalError(
                    LOST_IN_ANSWER, "the server closed the connection during a result"
                )
        return count

    def end(self, packet: bytes) -> None:
        last: Any = MysqlPacket(packet, self._session._inside.encoding)
        with self._session.errors():
            last.check_error()


_SETTINGS = (
    f"SET SESSION sql_mode='{STRICT_MODE}', time_zone='+00:00',"
    f" innodb_lock_wait_timeout={LOCK_WAIT_S}, lock_wait_timeout={LOCK_WAIT_S}"
    # MySQL can hide the primary keys that it generates; MariaDB skips this comment
    "/*!80030 , show_gipk_in_create_table_and_information_schema=1 */"
)


def connect(
    endpoint: Endpoint,
    *,
    codes: ErrorCodes = APPLY_CODES,
    autocommit: bool = False,
    database: str | None = None,
    answer_s: float | None = None,
    is_plain: bool = False,
) -> MySqlSession:
    """A session with the settings in the module's docstring. ``answer_s``: the limit for each answer.

    ``is_plain``: with none of the settings, for a server that may be a served relay log: it refuses what it does not
    know.
    """
    tls = endpoint.tls.mode
    try:
        connection = pymysql.connect(
            host=endpoint.host,
            port=endpoint.port,
            user=endpoint.user,
            password=endpoint.password.encode(),  # UTF-8; a str would be sent as latin-1
            database=database,
            charset="utf8mb4",
            autocommit=autocommit,
            connect_timeout=min(CONNECT_S, answer_s or CONNECT_S),
            read_timeout=min(LOGIN_S, answer_s or LOGIN_S),
            write_timeout=answer_s or READ_S,
            # LOCAL_FILES is for ``load``. Without its own option PyMySQL refuses to send a file.
            client_flag=CLIENT.FOUND_ROWS | CLIENT.LOCAL_FILES,
            conv=_CONVERSIONS,
            init_command=None if is_plain else _SETTINGS,
            ssl=cast(dict[str, object], _tls_context(endpoint, codes)),
            ssl_disabled=tls is TlsMode.DISABLED,
            **login_guards(is_encrypted=tls is not TlsMode.DISABLED, is_verified=tls.verifies),
        )
        if not is_plain:
            # as a statement: the variable has another name before MariaDB 11.1
            connection.query("SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED")
    except (pymysql.Error, OSError) as exc:
        cause = getattr(exc, "original_exception", exc)
        if isinstance(cause, ssl.SSLCertVerificationError):
            raise _untrusted(endpoint, codes, cause.verify_message, certificate_fix(cause)) from exc
        raise translated(exc, codes, endpoint=endpoint) from exc
    except (RuntimeError, ValueError) as exc:  # see ``millrace.tls``
        what, fix = f"{endpoint.name}: {exc}", login_fix(exc)
        if not fix:
            what = f"{endpoint.name} accepts this account's password only over TLS"
            is_unsafe = isinstance(exc, UnsafeLoginError) and tls is TlsMode.REQUIRE_UNVERIFIED
            modes = "verify-identity or verify-ca"
            modes = modes if is_unsafe else "verify-identity, verify-ca or require-unverified"
            fix = f"Set `tls` of the set document to {modes}."
        raise Fatal(codes.login, what, fix=fix, **{codes.place: endpoint.name}) from exc
    session = MySqlSession(endpoint, connection=connection, codes=codes)
    inside = session._inside
    inside._read_timeout = answer_s or READ_S
    inside.encoding = _ENCODING
    if wire := getattr(inside, "_sock", None):  # a test's server may have none
        _enable_keepalive(wire)
    _ = session.version
    return session


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


def _tls_context(endpoint: Endpoint, codes: ErrorCodes) -> ssl.SSLContext | None:
    mode, path = endpoint.tls.mode, endpoint.tls.ca_path
    if mode is TlsMode.DISABLED:
        return None
    if mode is TlsMode.REQUIRE_UNVERIFIED:
        return unverified()
    try:
        return verifying(path, checks_name=mode is TlsMode.VERIFY_IDENTITY)
    except UnusableAuthorityError as exc:
        fix = (
            f"Copy the CA's certificate (PEM) to {path} on the machines of all workers and Spark executors, readable by"
            " them, or set `tls_ca` in the set document to the right file; then run `millrace task resume TASK`."
        )
        raise _untrusted(endpoint, codes, str(exc), fix) from exc


def _untrusted(endpoint: Endpoint, codes: ErrorCodes, why: str, fix: str) -> Fatal:
    name = endpoint.name
    return Fatal(codes.certificate, f"{name}: {why}", fix=fix, **{codes.place: name})


def translated(
    exc: Exception,
    codes: ErrorCodes = APPLY_CODES,
    *,
    endpoint: Endpoint | None = None,
    account: str = "",
    in_session: bool = False,
) -> MillraceError:
    """The branch and code for an error of the driver; ``errno`` is in the context.

    ``account`` is the result of CURRENT_USER(), if known. The endpoint's side decides which privileges a fix names. The
    message is the server's text without the refused value; it does name a duplicate key. The error of a server itself,
    not of a row or statement, begins with its side and address.
    """
    error = server_error(exc)
    kind, text = kind_of(error, in_session=in_session), _VALUE.sub("value", error.text)
    code, fix, side = codes.kinds[kind], "", None if endpoint is None else endpoint.side
    if kind is Kind.PRIVILEGE_MISSING:
        user = "" if endpoint is None else endpoint.user
        is_source = side is Side.SOURCE
        fix = privilege_fix(code, text, account=account, user=user, is_source=is_source)
    context: dict[str, object] = {"errno": error.number}
    if endpoint is not None:
        if side and kind in OF_SERVERS:
            text = f"{side} {endpoint.name}: {text}"
        elif codes.is_of_members:
            text = f"{endpoint.name}: {text}"
        if codes.is_of_members or not in_session:
            context[codes.place] = endpoint.name
    branch = Retryable if kind.is_transient else Fatal
    return branch(code, text, fix=fix, **context)
