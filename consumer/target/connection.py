"""Connections to target servers: the one module of ``consumer`` that knows PyMySQL.

Guarantees: every error of the driver and the server leaves here as one of our three branches; affected rows are
*matched* rows (CLIENT.FOUND_ROWS), so an update that changes nothing still counts; sessions are UTC, READ COMMITTED,
autocommit off; a host that vanishes is noticed after a minute. ``commit`` may raise Retryable MR-5001 with the outcome
unknown: the caller reads progress, it never assumes.

Not done here: no reconnect, no retry, no pooling.
"""

import re
import socket
import ssl
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, cast

import pymysql
from pymysql.constants import CLIENT, FIELD_TYPE
from pymysql.converters import encoders
from pymysql.cursors import Cursor, SSCursor

from millrace.errors import Fatal, MillraceError, Retryable
from millrace.grants import privilege_fix
from millrace.tls import UnusableAuthorityError, unverified, verifying
from schemas.gtid import Flavour

Row = tuple[object, ...]

# integers come back as int, everything else as the server prints it
_INTEGERS = (
    FIELD_TYPE.TINY,
    FIELD_TYPE.SHORT,
    FIELD_TYPE.INT24,
    FIELD_TYPE.LONG,
    FIELD_TYPE.LONGLONG,
)
_CONVERSIONS: dict[Any, Any] = {**encoders, **dict.fromkeys(_INTEGERS, int)}

CONNECT_S = 10
LOGIN_S = 30  # a server that is stopped still has its connections taken, and says nothing
READ_S = 3600  # a long DDL; a hung lane is ended by the next run's fence
# A host that vanishes says nothing either. The system would notice after two hours of silence, or after a quarter of
# one with bytes of ours under way: after 20 s it is asked, four times, every 10 s.
SILENCE_S, ASK_S, ASKS = 20, 10, 4
LOCK_WAIT_S = (
    20  # for a row and for a table: a server would wait for a locked table for a day or a year
)

STRICT_MODE = "NO_AUTO_VALUE_ON_ZERO,STRICT_ALL_TABLES,ALLOW_INVALID_DATES"
LENIENT_MODE = "NO_AUTO_VALUE_ON_ZERO,ALLOW_INVALID_DATES"  # for an ENUM's index 0 alone

# By the server's number; below 100 they are those of its file layer.
_AWAY = {0, 1053, 1152, 1156, 1158, 1159, 1160, 1161, 1180, 1184, 1317, 1927, 1969}
_AWAY |= {2002, 2003, 2006, 2013, 2014, 2055, 3024, 3032, 3168, 3169, 4031}
# no working member of its group: Galera, NDB, a hook of Group Replication, whose primary changes or which stops
_AWAY |= {1047, 1297, 3100, 3781, 3782, 3783, 3796, 3797, 3798, 3799, 4094}
_LOGIN = {1045, 1129, 1130, 1251, 1698, 1820, 1862, 2061, 3118, 3955, 4151}
_PRIVILEGE = {1044, 1142, 1143, 1227, 1370, 1410}
_READ_ONLY = {1036, 1290, 1792, 1836, 1874, 3989}
_LIMITS = {1040, 1203, 1226}
_LIMITS |= {1135, 1206, 1587, 1637}  # threads, memory for locks, files, target transactions
_LIMITS |= {5, 1037, 1041, 1998, 3015, 3044, 3950, 3985, 4081, 4082}  # memory
_LOCKS = {1205, 1213, 1689, 3572}
_LOCKS |= {1020, 1412}  # what the target transaction has seen was changed since
_LOCKS |= {1964, 3101}  # at commit: the one before it failed, another member was first
_DISK = {3, 20, 1021, 1026, 1114, 1878, 3675, 3884}
_FILES = {1, 1030}  # a file can't be made, an engine failed: a full disk by the text alone
_FULL = re.compile(r"(?:Got error|\(OS errno|\(Errcode:) 28\b|No space left on device")
CONFLICTS = {1022, 1062, 1169, 1216, 1217, 1451, 1452, 1557, 1586, 1761, 1762}
_NO_TABLE = {1049, 1051, 1146}
_NO_COLUMN = {1054}
_PACKET = {1153}
_NO_TLS = 2026
_VALUE = re.compile(r"value: '.*'(?= for column |$)", re.DOTALL)  # 1366, 1292: a row's contents


@dataclass(frozen=True, slots=True)
class TlsChoice:
    """``mode`` as in the set document; ``ca_path`` empty: the system's trust store."""

    mode: str = "disabled"
    ca_path: str = ""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One server and how we log in. The password is never printed."""

    host: str
    port: int
    user: str
    password: str = field(repr=False)
    tls: TlsChoice = TlsChoice()


class TargetConnection:
    """One session on one target server."""

    def __init__(
        self, endpoint: Endpoint, *, connection: "pymysql.connections.Connection[Cursor]"
    ) -> None:
        self.endpoint = endpoint
        self._connection = connection
        (version,), *_ = self.query("SELECT VERSION()")
        self.flavour = Flavour.MARIADB if "MariaDB" in str(version) else Flavour.MYSQL

    @property
    def id(self) -> int:
        """The server's number of this session, as KILL takes it."""
        return int(self._connection.thread_id())  # type: ignore[no-untyped-call]

    def account(self) -> str:
        """Who we are to the server, like ``millrace@%``; empty when it does not answer."""
        return _account(self._connection)

    @property
    def is_open(self) -> bool:
        """False once it was closed or found broken by the driver."""
        return bool(self._connection.open)

    def query(self, sql: str | bytes, arguments: Sequence[object] | None = None) -> list[Row]:
        """Run one statement; all its rows. Without ``arguments`` it goes as it stands: a % is a %."""
        try:
            with self._connection.cursor() as cursor:
                cursor.execute(cast(str, sql), arguments)
                return list(cursor.fetchall())
        except (pymysql.Error, OSError) as exc:
            raise _answered(exc, self._connection) from exc

    def query_named(
        self, sql: str, arguments: Sequence[object] | None = None
    ) -> tuple[list[str], list[Row]]:
        """Run one statement; its column names and rows."""
        try:
            with self._connection.cursor() as cursor:
                cursor.execute(sql, arguments)
                return [column[0] for column in cursor.description or ()], list(cursor.fetchall())
        except (pymysql.Error, OSError) as exc:
            raise _answered(exc, self._connection) from exc

    def stream(self, sql: str, arguments: Sequence[object] | None = None) -> "RowStream":
        """Run one statement whose rows are read as they come."""
        return RowStream(self._connection.cursor(SSCursor), sql, arguments)

    def written(self, sql: str, arguments: Sequence[object]) -> bytes:
        """The statement with its arguments in it, for ``run``."""
        with self._connection.cursor() as cursor:
            return cursor.mogrify(sql, arguments).encode()

    def run(self, sql: bytes) -> int:
        """Run one statement as it stands, without arguments; how many rows it matched."""
        try:
            return self._connection.query(cast(str, sql))
        except (pymysql.Error, OSError) as exc:
            raise _answered(exc, self._connection) from exc

    def commit(self) -> None:
        """Commit. Retryable MR-5001 means that the outcome is unknown."""
        try:
            self._connection.commit()
        except (pymysql.Error, OSError) as exc:
            raise _answered(exc, self._connection) from exc

    def rollback(self) -> None:
        """Roll back; a broken connection has done so already."""
        try:
            self._connection.rollback()
        except (pymysql.Error, OSError):
            self.close()

    def cut(self) -> None:
        """From any thread: what waits for the server's answer ends in Retryable MR-5001, outcome unknown."""
        if wire := getattr(self._connection, "_sock", None):
            with suppress(OSError):  # not TLS's own, which changes under whom it waits
                socket.socket.shutdown(wire, socket.SHUT_RDWR)

    def close(self) -> None:
        """Close; never raises."""
        try:
            self._connection.close()
        except (pymysql.Error, OSError):
            return


class RowStream:
    """The rows of one statement, as they come."""

    def __init__(self, cursor: Cursor, sql: str, arguments: Sequence[object] | None) -> None:
        self._cursor = cursor
        self._connection = cursor.connection
        try:
            cursor.execute(sql, arguments)
        except (pymysql.Error, OSError) as exc:
            raise _answered(exc, self._connection) from exc

    def take(self, count: int) -> list[Row]:
        """The next ``count`` rows; fewer at the end."""
        try:
            return list(self._cursor.fetchmany(count))
        except (pymysql.Error, OSError) as exc:
            raise _answered(exc, self._connection) from exc

    def close(self) -> None:
        """Read what is left and close; of a connection that broke nothing is left. Never raises."""
        if self._connection.open:
            with suppress(pymysql.Error, OSError):
                self._cursor.close()
        inside: Any = self._cursor
        if not self._connection.open and inside._result:
            # else PyMySQL, when it frees cursor and result, reads on from a socket that it has let go
            inside._result.unbuffered_active = False


def connect(endpoint: Endpoint, *, database: str | None = None) -> TargetConnection:
    """A session in the mode that apply wants; see the module."""
    try:
        connection = pymysql.connect(
            host=endpoint.host,
            port=endpoint.port,
            user=endpoint.user,
            password=endpoint.password.encode(),  # UTF-8; a str would go as latin-1
            database=database,
            charset="utf8mb4",
            autocommit=False,
            connect_timeout=CONNECT_S,
            read_timeout=LOGIN_S,
            write_timeout=READ_S,
            client_flag=CLIENT.FOUND_ROWS,
            conv=_CONVERSIONS,
            init_command=(
                f"SET SESSION sql_mode='{STRICT_MODE}', time_zone='+00:00',"
                f" innodb_lock_wait_timeout={LOCK_WAIT_S}, lock_wait_timeout={LOCK_WAIT_S},"
                " transaction_isolation='READ-COMMITTED'"
            ),
            **_tls_arguments(endpoint),
        )
    except (pymysql.Error, OSError) as exc:
        server = f"{endpoint.host}:{endpoint.port}"
        cause = getattr(exc, "original_exception", exc)
        if isinstance(cause, ssl.SSLCertVerificationError) or exc.args[:1] == (_NO_TLS,):
            raise Fatal("MR-5009", f"{server}: {cause}", server=server) from exc
        raise translated(exc, server=server) from exc
    except RuntimeError as exc:  # PyMySQL without TLS can't send what caching_sha2_password wants
        raise Fatal(
            "MR-5002",
            f"{endpoint.host}:{endpoint.port} takes this account's password over TLS alone",
            fix="Set `tls` of the set document to verify-identity, verify-ca or require-unverified.",
        ) from exc
    inside: Any = connection  # its socket and timeout, which PyMySQL does not declare
    inside._read_timeout = READ_S
    if wire := getattr(inside, "_sock", None):  # a server of tests may have none
        _ask_when_silent(wire)
    return TargetConnection(endpoint, connection=connection)


def _ask_when_silent(wire: socket.socket) -> None:
    """As far as the system has these options."""
    dead_ms = 1000 * (SILENCE_S + ASKS * ASK_S)  # also while bytes of ours are under way
    for name, value in (
        ("TCP_KEEPIDLE", SILENCE_S),
        ("TCP_KEEPINTVL", ASK_S),
        ("TCP_KEEPCNT", ASKS),
        ("TCP_USER_TIMEOUT", dead_ms),
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
        path, server = endpoint.tls.ca_path, f"{endpoint.host}:{endpoint.port}"
        raise Fatal(
            "MR-5009",
            f"{server}: {exc}",
            fix=f"Bring the CA's certificate (PEM) to {path} on the machines of driver and executors, readable to them,"
            " or name the right file as `tls_ca` in the set document; then `millrace task resume NAME`.",
            server=server,
        ) from exc


def _answered(exc: Exception, connection: "pymysql.connections.Connection[Any]") -> MillraceError:
    """``translated``; a refusal's GRANT names the account as the server does, not the client's host."""
    if not isinstance(exc, pymysql.Error) or not exc.args or exc.args[0] not in _PRIVILEGE:
        return translated(exc)
    return translated(exc, account=_account(connection))


def _account(connection: "pymysql.connections.Connection[Any]") -> str:
    try:
        with connection.cursor(Cursor) as cursor:
            cursor.execute("SELECT CURRENT_USER()")
            ((account,),) = cursor.fetchall()
    except (pymysql.Error, OSError):
        return ""
    return str(account)


def translated(exc: Exception, *, account: str = "", **context: Any) -> MillraceError:
    """The branch and code for a driver's error; ``errno`` goes into the context.

    ``account`` is what CURRENT_USER() said, where that was asked.
    The server's text stays without the value that it refused; a key that is taken is named.
    """
    number = exc.args[0] if exc.args and isinstance(exc.args[0], int) else 0
    text = _VALUE.sub("value", str(exc.args[-1])) if exc.args else type(exc).__name__
    if isinstance(exc, OSError):
        number, text = 0, exc.strerror or str(exc)
    context = {**context, "errno": number}
    if number in _FILES and _FULL.search(text):
        return Retryable("MR-5006", text, **context)
    for numbers, code in (
        (_AWAY, "MR-5001"),
        (_READ_ONLY, "MR-5003"),
        (_LIMITS, "MR-5004"),
        (_LOCKS, "MR-5005"),
        (_DISK, "MR-5006"),
    ):
        if number in numbers:
            return Retryable(code, text, **context)
    for numbers, code in (
        (_LOGIN, "MR-5002"),
        (_PRIVILEGE, "MR-5007"),
        (CONFLICTS, "MR-5010"),
        (_NO_TABLE, "MR-5012"),
        (_NO_COLUMN, "MR-5013"),
        (_PACKET, "MR-5014"),
    ):
        if number in numbers:
            fix = privilege_fix(code, text, account=account) if code == "MR-5007" else ""
            return Fatal(code, text, fix=fix, **context)
    return Fatal("MR-5011", text, **context)
