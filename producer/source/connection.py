"""One connection to a source server: handshake, authentication and TLS by PyMySQL, then queries or a raw dump stream.

Only this module translates driver errors:

    Retryable MR-1001 not reachable     MR-1006 connection lost
    Fatal     MR-1002 account refused   MR-1003 certificate not verified   MR-1004 no TLS offered
              MR-1005 missing privilege MR-1008 authentication needs TLS   MR-1007 any other server error

Error 1220 (a binlog file can't be shown) has the texts of dump errors and gets their codes (``dump_errors``).

Guarantees: in a verifying mode, no password is sent before the certificate is verified. No text contains the password.
Not done here: which queries to send (``members``), what the stream means (``producer.source.receive.receiver``).
"""

import socket
import ssl
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, NoReturn, Self, TypeAlias, cast

import pymysql
from pymysql.constants import COMMAND, ER
from pymysql.protocol import MysqlPacket

from drivers.mysql.errors import Kind, kind_of, server_error
from drivers.mysql.grants import privilege_fix
from millrace.errors import Fatal, Retryable
from millrace.text_protocol.arriving import DrainedFile, RowPackets
from millrace.tls import (
    UnusableAuthorityError,
    certificate_fix,
    login_fix,
    login_guards,
    unverified,
    verifying,
)
from producer.source.receive.dump_errors import explain_dump_error
from schemas.documents import Member, Tls, TlsMode
from schemas.documents.secret import SecretReference, resolve_secret

CONNECT_TIMEOUT_S = 10
QUERY_TIMEOUT_S = 30

Value: TypeAlias = str | int | float | None
Row: TypeAlias = dict[str, Value]


@dataclass(frozen=True, slots=True, kw_only=True)
class Login:
    """The account and TLS settings for every member of a set.

    A reference to the password is resolved at each connection, so that a changed password is used at the next one.
    """

    user: str
    password: str | SecretReference = field(repr=False)
    tls: Tls

    def resolved(self) -> str:
        """The password of now. Fatal MR-4106."""
        known = self.password
        return known if isinstance(known, str) else resolve_secret(known)


class SourceConnection:
    """An authenticated session. Used by one thread."""

    def __init__(
        self,
        connection: "pymysql.Connection[pymysql.cursors.DictCursor]",
        member: Member,
        *,
        user: str = "",
    ) -> None:
        self._connection = connection
        # The command and packet layer, which PyMySQL's type does not declare.
        self._internals: Any = connection
        self.member = member
        self._user = user

    @classmethod
    def connect(cls, member: Member, login: Login, *, timeout_s: float = 0.0) -> Self:
        """Connect and log in. ``timeout_s``: for each answer, 0 for the defaults. Errors: see the module."""
        with _driver_errors(member, login), _login_errors(member):
            return cls(
                pymysql.connect(
                    host=member.host,
                    port=member.port,
                    user=login.user,
                    password=login.resolved().encode(),  # UTF-8, as the mariadb client does; a str is sent as latin-1
                    ssl=cast(dict[str, object], _tls_context(login.tls, member)),
                    ssl_disabled=login.tls.mode is TlsMode.DISABLED,
                    connect_timeout=timeout_s or CONNECT_TIMEOUT_S,
                    read_timeout=timeout_s or QUERY_TIMEOUT_S,
                    write_timeout=timeout_s or QUERY_TIMEOUT_S,
                    autocommit=True,
                    charset="utf8mb4",
                    use_unicode=False,
                    cursorclass=pymysql.cursors.DictCursor,
                    **login_guards(
                        is_encrypted=login.tls.mode is not TlsMode.DISABLED,
                        is_verified=login.tls.mode.verifies,
                    ),
                ),
                member,
                user=login.user,
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the session without waiting for the server."""
        self._internals._force_close()  # close() sends COM_QUIT first, which a dump does not read

    def account(self) -> str:
        """The account that the server matched, for example ``millrace@%``; empty if the query fails."""
        try:
            with self._connection.cursor(pymysql.cursors.Cursor) as cursor:
                cursor.execute("SELECT CURRENT_USER()")
                ((account,),) = cursor.fetchall()
        except (pymysql.MySQLError, OSError):
            return ""
        return str(_decode(account))

    def query(self, statement: str, arguments: Sequence[Value] = ()) -> list[Row]:
        """Execute a statement and return its rows by column name.

        U+FFFD replaces bytes that are not UTF-8. Servers show statements (from the binlog, or in the last error of a
        replica) in the encoding of the client that sent them.
        """
        with _driver_errors(self.member, asked=self), self._connection.cursor() as cursor:
            cursor.execute(statement, tuple(arguments) or None)
            return [
                {name: _decode(value) for name, value in row.items()} for row in cursor.fetchall()
            ]

    @property
    def name(self) -> str:
        """The server as host:port."""
        return str(self.member)

    def named(self, statement: str) -> list[Row]:
        """The rows of a statement without arguments."""
        return self.query(statement)

    def row_packets(self, statement: str) -> RowPackets:
        """Execute a SELECT and leave its rows to the caller, as the packets that the server sends."""
        with _driver_errors(self.member, asked=self):
            return _SelectPackets(self, statement)

    def interrupt(self) -> None:
        """From another thread: let the statement under way fail. The session can't be used again."""
        sock = self._internals._sock
        if sock is not None:
            with suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)

    def command(self, number: int, payload: bytes) -> None:
        """Send a protocol command whose answer is an OK packet."""
        with _driver_errors(self.member, asked=self):
            self._internals._execute_command(number, payload)
            self._internals._read_packet()

    def start_stream(self, number: int, payload: bytes) -> socket.socket:
        """Send a command whose answer is an endless stream, and return the socket to read it from.

        The driver's buffer is empty, because the server sends only after a command. Keep this object alive.
        """
        with _driver_errors(self.member, asked=self):
            self._internals._execute_command(number, payload)
        return cast(socket.socket, self._internals._sock)


class _SelectPackets:
    """``RowPackets`` of a session."""

    def __init__(self, session: SourceConnection, statement: str) -> None:
        self._session = session
        inside = session._internals
        inside._execute_command(COMMAND.COM_QUERY, statement)
        head = inside._read_packet()
        if head.is_load_local_packet():
            raise RuntimeError("the server asks for a file")
        columns = head.read_length_encoded_integer()
        for _ in range(columns + 1):  # and one packet after them
            inside._read_packet()
        self.sequence = int(inside._next_seq_id)
        self._file = DrainedFile(inside._rfile)

    def read(self, room: memoryview) -> int:
        """See ``RowPackets``."""
        session = self._session
        with _driver_errors(session.member, asked=session):
            count = self._file.read(room)
        if not count:
            session.close()
            raise Retryable("MR-1006", f"{session.member} closed the connection during a result")
        return count

    def end(self, packet: bytes) -> None:
        """See ``RowPackets``."""
        session = self._session
        last: Any = MysqlPacket(packet, session._internals.encoding)
        with _driver_errors(session.member, asked=session):
            last.check_error()


def _decode(value: Any) -> Value:
    return value.decode(errors="replace") if isinstance(value, bytes) else value


def _tls_context(tls: Tls, member: Member) -> ssl.SSLContext | None:
    match tls.mode:
        case TlsMode.DISABLED:
            return None
        case TlsMode.REQUIRE_UNVERIFIED:
            return unverified()
        case TlsMode.VERIFY_CA | TlsMode.VERIFY_IDENTITY:
            try:
                return verifying(tls.ca_path, checks_name=tls.mode is TlsMode.VERIFY_IDENTITY)
            except UnusableAuthorityError as error:
                raise Fatal(
                    "MR-1003",
                    f"{member}: {error}",
                    fix=f"Copy the CA's certificate (PEM) to {tls.ca_path} on each worker's machine, readable by"
                    " the worker, or name the right file as `tls_ca` in the set document; then resume.",
                    member=member,
                ) from error


@contextmanager
def _login_errors(member: Member) -> Iterator[None]:
    """The driver's own refusals; see ``millrace.tls``."""
    try:
        yield
    except (RuntimeError, ValueError) as error:
        raise Fatal("MR-1008", f"{member}: {error}", fix=login_fix(error), member=member) from error


@contextmanager
def _driver_errors(
    member: Member, login: Login | None = None, *, asked: SourceConnection | None = None
) -> Iterator[None]:
    try:
        yield
    except pymysql.MySQLError as error:
        user = login.user if login is not None else asked._user if asked is not None else ""
        _translate(error, member, user, asked)
    except ssl.SSLCertVerificationError as error:
        raise _unverified_certificate(error, member) from error
    except OSError as error:
        raise Retryable("MR-1001", f"{member}: {error}", member=member) from error
    except RuntimeError as error:  # PyMySQL: the server asks for a file
        raise Fatal("MR-1007", f"{member}: {error}", member=member) from error


def _translate(
    error: "pymysql.MySQLError", member: Member, user: str, asked: SourceConnection | None
) -> NoReturn:
    found = server_error(error)
    kind, message = kind_of(found), f"{member}: {found.text}"
    cause = getattr(error, "original_exception", None)
    if isinstance(cause, ssl.SSLCertVerificationError):
        raise _unverified_certificate(cause, member) from error
    if kind is Kind.NO_TLS:
        raise Fatal("MR-1004", message, member=member, errno=found.number) from error
    # In a session, MariaDB answers 1045 to a dump without REPLICATION SLAVE.
    is_denied_later = asked is not None and found.number == ER.ACCESS_DENIED_ERROR
    if kind is Kind.LOGIN_REFUSED and not is_denied_later:
        account = f"'{user}'" if user else "the account"
        refusal = f"{member} refuses {account}: {found.text}"
        raise Fatal("MR-1002", refusal, member=member, errno=found.number) from error
    if kind is Kind.PRIVILEGE_MISSING or is_denied_later:
        account = asked.account() if asked else ""
        fix = privilege_fix("MR-1005", found.text, account=account, user=user)
        raise Fatal("MR-1005", message, fix=fix, member=member, errno=found.number) from error
    if found.number == ER.ERROR_WHEN_EXECUTING_COMMAND:
        raise explain_dump_error(found.number, found.text, member) from error
    if kind.is_transient:
        code = "MR-1006" if kind is Kind.LOST else "MR-1001"
        raise Retryable(code, message, member=member, errno=found.number) from error
    answer = f"{member} answers {found.number}: {found.text}"
    raise Fatal("MR-1007", answer, member=member, errno=found.number) from error


def _unverified_certificate(error: ssl.SSLCertVerificationError, member: Member) -> Fatal:
    message = f"{member}: {error.verify_message}"
    return Fatal("MR-1003", message, fix=certificate_fix(error), member=member)
