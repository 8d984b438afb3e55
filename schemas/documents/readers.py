"""Readers of single values: each returns a typed value or raises ``Unreadable`` with a description of valid values.

A reader takes any plain value and raises no other error. ``schemas.documents.fields`` calls them. Each has a JSON
Schema for editors (``described``), which accepts every value that the reader accepts, and more if a pattern can not
express the rule.
"""

import re
from collections.abc import Callable, Sequence
from enum import StrEnum
from typing import TypeVar
from urllib.parse import urlsplit
from weakref import WeakKeyDictionary

from millrace.schemas.documents.fields import Unreadable
from millrace.schemas.documents.secret import SecretReference
from millrace.schemas.documents.start import Start
from millrace.schemas.table.table_filter import SYSTEM_DATABASES

NAME_WANTED = "a name of 1 to 63 letters, digits, '.', '_', '-', beginning with a letter or digit"
TOPIC_CHARACTERS_MAX = 249  # Kafka's own limit
TEXT_CHARACTERS_MAX = 1024
LABELS_MAX = 16
START_CHARACTERS_MAX = 64 * 1024  # a GTID set with many servers and gaps

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
_TOPIC = re.compile(r"[A-Za-z0-9._-]+")
_DATABASE = re.compile(r"[A-Za-z0-9_$-]{1,64}")
_HOST = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._:%-]*[A-Za-z0-9])?|::1?")
_UUID = r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}"
_PIECE = r"(?:[A-Za-z_][A-Za-z0-9_]{0,31}|\d+(?:-\d+)?)"
_MYSQL_GTID_SET = re.compile(rf"{_UUID}(?::{_PIECE})+(?:,{_UUID}(?::{_PIECE})+)*")
_BINLOG_FILE = re.compile(r"[^/\x00-\x20.][^/\x00-\x20]{0,243}\.\d{6,10}", re.ASCII)
_MARIADB_POSITION = re.compile(r"\d+-\d+-\d+(?:,\d+-\d+-\d+)*")

_FOREIGN_DATABASES = SYSTEM_DATABASES - {"millrace"}

E = TypeVar("E", bound=StrEnum)
R = TypeVar("R", bound=Callable[[object], object])
_SCHEMAS: WeakKeyDictionary[Callable[[object], object], dict[str, object]] = WeakKeyDictionary()


def described(**schema: object) -> Callable[[R], R]:
    """Attach a JSON Schema to a reader."""

    def describe(read: R) -> R:
        _SCHEMAS[read] = schema
        return read

    return describe


def schema_of(read: Callable[[object], object]) -> dict[str, object]:
    """The JSON Schema of a reader; KeyError if it has none."""
    return dict(_SCHEMAS[read])


def is_name(text: str) -> bool:
    """True if a set, task, cluster or process may have this name: safe as a znode, a file and part of a Kafka ID."""
    return _NAME.fullmatch(text) is not None


@described(type="string", pattern=f"^{_NAME.pattern}$")
def name(value: object) -> str:
    """The name of a set or task."""
    if not isinstance(value, str) or not is_name(value):
        raise Unreadable(NAME_WANTED)
    return value


@described(type="string", pattern=f"^{_TOPIC.pattern}$", maxLength=TOPIC_CHARACTERS_MAX)
def topic(value: object) -> str:
    """A Kafka topic."""
    if (
        not isinstance(value, str)
        or len(value) > TOPIC_CHARACTERS_MAX
        or not _TOPIC.fullmatch(value)
        or value in (".", "..")
    ):
        raise Unreadable(
            f"a topic name of 1 to {TOPIC_CHARACTERS_MAX} letters, digits, '.', '_', '-'"
        )
    return value


_LABELS_WANTED = f"up to {LABELS_MAX} names with a value each, such as {{zone: a}}"


@described(
    type="object",
    minProperties=1,
    maxProperties=LABELS_MAX,
    propertyNames={"pattern": f"^{_NAME.pattern}$"},
    additionalProperties={"type": "string", "pattern": f"^{_NAME.pattern}$"},
)
def labels(value: object) -> frozenset[str]:
    """The labels of workers, as texts like ``zone=a``. Names and values have the form of a set's name."""
    if not isinstance(value, dict) or not 0 < len(value) <= LABELS_MAX:
        raise Unreadable(_LABELS_WANTED)
    found = []
    for key, word in value.items():
        if not isinstance(key, str) or not isinstance(word, str):
            raise Unreadable(_LABELS_WANTED)
        found.append(label(f"{key}={word}"))
    return frozenset(found)


def label(text: str) -> str:
    """One label like ``zone=a``."""
    key, _, word = text.partition("=")
    if not is_name(key) or not is_name(word):
        raise Unreadable(
            "NAME=VALUE, each of 1 to 63 letters, digits, '.', '_', '-', beginning with a letter or digit",
            found=repr(text[:60]),
        )
    return text


def text(wanted: str) -> Callable[[object], str]:
    """Any non-empty text without control characters."""

    @described(type="string", minLength=1, maxLength=TEXT_CHARACTERS_MAX, description=wanted)
    def read(value: object) -> str:
        if (
            not isinstance(value, str)
            or not 0 < len(value) <= TEXT_CHARACTERS_MAX
            or not value.isprintable()
        ):
            raise Unreadable(wanted)
        return value

    return read


@described(type="string", minLength=1, maxLength=255)
def host(value: object) -> str:
    """A host name or an address."""
    if not isinstance(value, str) or len(value) > 255 or not _is_host(value):
        raise Unreadable("a host name or address")
    return value


def integer(low: int, high: int) -> Callable[[object], int]:
    """An integer from ``low`` to ``high``, not a boolean."""

    @described(type="integer", minimum=low, maximum=high)
    def read(value: object) -> int:
        if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
            raise Unreadable(f"a whole number from {low} to {high}")
        return value

    return read


@described(type="boolean")
def flag(value: object) -> bool:
    """``true`` or ``false``."""
    if not isinstance(value, bool):
        raise Unreadable("true | false")
    return value


@described(type="string", pattern=f"^{_DATABASE.pattern}$")
def database(value: object) -> str:
    """The name of a database of the source; the system's own are refused."""
    is_valid = isinstance(value, str) and _DATABASE.fullmatch(value) is not None
    if not is_valid or str(value).lower() in _FOREIGN_DATABASES:
        raise Unreadable(
            "a database name of 1 to 64 letters, digits, '_', '$', '-', not a system's"
        )
    return str(value)


def seconds(low: float, high: float) -> Callable[[object], float]:
    """A number of seconds from ``low`` to ``high``."""

    @described(type="number", minimum=low, maximum=high)
    def read(value: object) -> float:
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if not is_number or not low <= float(value) <= high:  # type: ignore[arg-type]
            raise Unreadable(f"seconds from {low:g} to {high:g}")
        return float(value)  # type: ignore[arg-type]

    return read


def choice(kind: type[E]) -> Callable[[object], E]:
    """One of the words of ``kind``."""
    return one_of(tuple(kind))


def one_of(kinds: Sequence[E]) -> Callable[[object], E]:
    """One of these words."""
    words = {kind.value: kind for kind in kinds}

    @described(enum=list(words))
    def read(value: object) -> E:
        if not isinstance(value, str) or value not in words:
            raise Unreadable(" | ".join(words))
        return words[value]

    return read


@described(type="string", pattern=r"^(env:[A-Za-z_][A-Za-z0-9_]*|(file|exec):/.*)$")
def secret(value: object) -> SecretReference:
    """A reference to a secret. Errors never show the value, because it may be the secret itself."""
    reference = SecretReference.parse(value) if isinstance(value, str) else None
    if reference is None:
        raise Unreadable(
            "a reference: env:NAME_OF_A_VARIABLE, file:/path/to/it or exec:/program ARGUMENT (documents never"
            " contain the secret itself)",
            found="a value that is not shown",
        )
    return reference


@described(type="string", minLength=1, maxLength=START_CHARACTERS_MAX, description="a GTID set")
def gtid_set(value: object) -> str:
    """A GTID set of either flavour. White space in it is dropped."""
    wanted = (
        "a GTID set as text, such as 0-1-23 (MariaDB) or"
        " 3e11fa47-71ca-11e1-9e33-c80aa9429562:1-5 (MySQL)"
    )
    if not isinstance(value, str) or len(value) > START_CHARACTERS_MAX:
        raise Unreadable(wanted)
    packed = "".join(value.split())
    if not _MYSQL_GTID_SET.fullmatch(packed) and not _MARIADB_POSITION.fullmatch(packed):
        raise Unreadable(wanted)
    return packed


@described(type="string", maxLength=START_CHARACTERS_MAX, description="first, or a GTID set")
def start(value: object) -> Start:
    """``first`` or a GTID set of either flavour. White space in the set is dropped."""
    if value == "first":
        return Start()
    try:
        return Start(gtid_set(value))
    except Unreadable as exc:
        raise Unreadable(f"first, or {exc.wanted}") from exc


@described(type="string", maxLength=START_CHARACTERS_MAX, description="first, load, or a GTID set")
def apply_start(value: object) -> Start:
    """``load``, or as ``start``."""
    if value == "load":
        return Start(is_load=True)
    try:
        return start(value)
    except Unreadable as exc:
        raise Unreadable(exc.wanted.replace("first, or", "first, load, or", 1)) from exc


@described(
    type="string", maxLength=START_CHARACTERS_MAX, description="first, snapshot, or a GTID set"
)
def publish_start(value: object) -> Start:
    """``snapshot``, or as ``start``."""
    if value == "snapshot":
        return Start(is_snapshot=True)
    try:
        return start(value)
    except Unreadable as exc:
        raise Unreadable(exc.wanted.replace("first, or", "first, snapshot, or", 1)) from exc


@described(
    type="string", maxLength=START_CHARACTERS_MAX, description="first, a GTID set, or a binlog file"
)
def relay_start(value: object) -> str:
    """``first``, a GTID set of either flavour, or a binlog file such as ``mysql-bin.000017``."""
    if value == "first" or (isinstance(value, str) and is_binlog_file(value)):
        return str(value)
    try:
        return gtid_set(value)
    except Unreadable as exc:
        wanted = f"first, a binlog file such as mysql-bin.000017, or {exc.wanted}"
        raise Unreadable(wanted) from exc


def is_binlog_file(text: str) -> bool:
    """True if the text names a binlog file, not a GTID set."""
    return _BINLOG_FILE.fullmatch(text) is not None


@described(type="string", maxLength=TEXT_CHARACTERS_MAX, description="host:port[,host:port]")
def bootstrap(value: object) -> str:
    """Kafka's bootstrap servers as ``host:port[,host:port]``."""
    wanted = "Kafka servers: host:port[,host:port]"
    if not isinstance(value, str) or len(value) > TEXT_CHARACTERS_MAX:
        raise Unreadable(wanted)
    for server in value.split(","):
        server_host, colon, port = server.strip().rpartition(":")
        if not colon or not _is_host(server_host.strip("[]")) or not _is_port(port):
            raise Unreadable(wanted)
    return ",".join(server.strip() for server in value.split(","))


@described(type="string", pattern="^https?://[^@]+$", maxLength=TEXT_CHARACTERS_MAX)
def url(value: object) -> str:
    """An http(s) URL without user and password, which anybody could read in ZooKeeper."""
    wanted = "a URL without user and password, which are fields: https://host:port"
    if not isinstance(value, str) or len(value) > TEXT_CHARACTERS_MAX or not value.isprintable():
        raise Unreadable(wanted)
    try:
        parts = urlsplit(value)
        port = parts.port
    except ValueError as exc:
        raise Unreadable(wanted) from exc
    if "@" in parts.netloc:
        raise Unreadable(wanted, found="a URL with a user, not shown")
    if parts.scheme not in ("http", "https") or not parts.hostname or port == 0 or " " in value:
        raise Unreadable(wanted)
    if not _has_labels(parts.hostname):
        raise Unreadable(wanted)
    return value.rstrip("/")


@described(type="string", pattern=r"^[^.]+\..", maxLength=200)
def table_pattern(value: object) -> str:
    """``database.table`` with ``*`` and ``?``."""
    if not isinstance(value, str) or len(value) > 200 or not all(value.partition(".")[::2]):
        raise Unreadable("a pattern database.table, such as shop.* or *.*")
    return value


def _is_host(text: str) -> bool:
    return _HOST.fullmatch(text) is not None and _has_labels(text)


def _has_labels(host: str) -> bool:
    """True if each label of the name has 1 to 63 characters, as sockets require."""
    try:
        host.encode("idna")
    except UnicodeError:
        return False
    return True


def _is_port(digits: str) -> bool:
    return digits.isascii() and digits.isdigit() and len(digits) <= 5 and 0 < int(digits) < 65536
