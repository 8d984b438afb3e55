"""The address of a server as a URL, as database clients write it.

    mysql://user[:password]@host[:port][,host[:port]…][/database[.table]][?tls=MODE&ca=FILE]

``mariadb://`` is the same: the server reports its kind. Characters of a user or password that mean something in a URL
are percent-encoded. Without a password, MYSQL_PWD or the terminal has it. ``tls`` is a mode of a set document. Without
it, the connection is encrypted and the server not verified, as by database clients; on this machine also without TLS.
"""

import getpass
import os
import sys
from dataclasses import dataclass, field
from urllib.parse import parse_qsl, unquote, urlsplit

from millrace.errors import Fatal
from millrace.schemas.documents import Member, Tls, TlsMode, yaml_from_plain

PORT = 3306
SET = "mine"  # in the documents
PASSWORD_VARIABLE = "MYSQL_PWD"
_SCHEMES = ("mysql", "mariadb")
_LOOPBACK = ("localhost", "127.0.0.1", "[::1]")
_WANTED = "Give a URL such as `mysql://user@host:3306/database`."
_OPTIONS = ("tls", "ca")


@dataclass(frozen=True, slots=True)
class ServerAddress:
    """``tables``: the pattern of the URL's path. ``tls``: None if the URL leaves it open."""

    members: tuple[Member, ...]
    user: str
    password: str | None = field(repr=False)
    tables: str
    tls: Tls | None

    @classmethod
    def parse(cls, url: str) -> "ServerAddress":
        """Fatal MR-4149 for another form. The message never has the password."""
        try:
            parts = urlsplit(url)
        except ValueError as error:
            raise _malformed(str(error)) from error
        if parts.scheme not in _SCHEMES:
            raise _malformed("it does not begin with mysql:// or mariadb://")
        login, at, hosts = parts.netloc.rpartition("@")
        user, colon, password = login.partition(":")
        if not at or not user:
            raise _malformed("it names no user")
        if parts.fragment:
            raise _malformed("a # in a password is written as %23")
        return cls(
            tuple(_member(host) for host in hosts.split(",")),
            unquote(user),
            unquote(password) if colon else None,
            _tables(unquote(parts.path.strip("/"))),
            _tls(parts.query),
        )

    @property
    def is_loopback(self) -> bool:
        return all(member.host in _LOOPBACK for member in self.members)

    def ask_password(self) -> str:
        """The URL's, MYSQL_PWD's, or one that is typed; "" without a terminal."""
        if self.password is not None:
            return self.password
        if (of_environment := os.environ.get(PASSWORD_VARIABLE)) is not None:
            return of_environment
        if not sys.stdin.isatty():
            return ""
        try:
            return getpass.getpass(f"Password of {self.user}: ")
        except (EOFError, KeyboardInterrupt):
            print(file=sys.stderr)
            raise KeyboardInterrupt from None


def documents(address: ServerAddress, position: str) -> str:
    """A set and a capture task that begins after this GTID set, as YAML. The password is named, not copied."""
    plain_set: dict[str, object] = {
        "set": SET,
        "members": [{"host": each.host, "port": each.port} for each in address.members],
        "user": address.user,
        "password": f"env:{PASSWORD_VARIABLE}",
    }
    if address.tls is not None:
        plain_set["tls"] = {"mode": address.tls.mode.value} | (
            {"ca": address.tls.ca_path} if address.tls.ca_path else {}
        )
    task: dict[str, object] = {
        "task": f"{SET}-capture",
        "kind": "capture",
        "set": SET,
        "topic": SET,
        "kafka": {"bootstrap": "localhost:9092"},
        "registry": "http://localhost:8081",
        "start": position or "first",
    }
    if address.tables != "*.*":
        task["include"] = [address.tables]
    return f"{yaml_from_plain(plain_set)}---\n{yaml_from_plain(task)}"


def _member(text: str) -> Member:
    host, colon, port = text.rpartition(":")
    if not colon or text.endswith("]"):  # an address of IPv6 without a port
        host, port = text, str(PORT)
    if not host or not (port.isascii() and port.isdigit() and 0 < int(port) < 1 << 16):
        raise _malformed(f"{text!r} is not host or host:port")
    return Member("127.0.0.1" if host == "localhost" else host.strip("[]"), int(port))


def _tables(path: str) -> str:
    if "/" in path:
        raise _malformed(f"{path!r} is not a database or database.table")
    database, dot, table = path.partition(".")
    return f"{database or '*'}.{table if dot else '*'}"


def _tls(query: str) -> Tls | None:
    options = dict(parse_qsl(query, keep_blank_values=True))
    if unknown := sorted(set(options) - set(_OPTIONS)):
        raise _malformed(f"{unknown[0]!r} is no option; tls and ca are")
    if not options:
        return None
    modes = ", ".join(TlsMode)
    try:
        mode = TlsMode(options.get("tls", TlsMode.VERIFY_IDENTITY))
    except ValueError:
        raise _malformed(f"tls is one of {modes}") from None
    return Tls(mode, options.get("ca", ""))


def _malformed(why: str) -> Fatal:
    return Fatal("MR-4149", f"the URL can't be used: {why}", fix=_WANTED)
