"""What an operator may ask for: sets and tasks, as frozen values.

A document is written as YAML (``schemas.documents.text``), kept as canonical JSON in ZooKeeper
(``schemas.documents.canonical``) and used inside as these types only. Constructing one checks nothing: the border
(``schemas.documents.parse``) does. No secret is ever in one, only where it is found.
"""

import re
from dataclasses import dataclass, field
from enum import StrEnum
from functools import lru_cache

from schemas.documents.secret import SecretReference


class TlsMode(StrEnum):
    """How a connection to a MySQL server is protected."""

    VERIFY_IDENTITY = "verify-identity"  # encrypted, certificate chain and host name checked
    VERIFY_CA = "verify-ca"  # encrypted, certificate chain checked
    REQUIRE_UNVERIFIED = "require-unverified"  # encrypted towards whoever answers
    DISABLED = "disabled"  # plain text


class TaskKind(StrEnum):
    """Which kind of worker can run a task."""

    CAPTURE = "capture"
    APPLY = "apply"


class Consistency(StrEnum):
    """What a reader of the target may see while tasks run."""

    CAUSAL = "causal"
    TRANSACTIONAL = "transactional"


class ConflictPolicy(StrEnum):
    """What happens when a target row disagrees."""

    STOP = "stop"
    OVERWRITE = "overwrite"
    SKIP = "skip"


_THIS_MACHINE = ("localhost", "127.0.0.1", "[::1]")


@dataclass(frozen=True, slots=True)
class Member:
    """One server of a set. Its role is found by asking it."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class Account:
    """The user we are on every member of a set."""

    user: str
    password: SecretReference


@dataclass(frozen=True, slots=True)
class Tls:
    """``ca_path`` is a PEM file on the worker; empty means the system's trust store."""

    mode: TlsMode = TlsMode.VERIFY_IDENTITY
    ca_path: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class SetDocument:
    """A primary and its replicas."""

    name: str
    members: tuple[Member, ...]
    account: Account
    tls: Tls = field(default_factory=Tls)


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicAddress:
    """Where a set's records stand. ``registry`` is a URL, empty when none is used."""

    topic: str
    bootstrap: str
    registry: str = ""

    def is_same_topic(self, other: "TopicAddress") -> bool:
        """Whether both surely name one topic: an address in common. Another name of a broker is found out by Kafka."""
        return self.topic == other.topic and not _brokers(self).isdisjoint(_brokers(other))


@dataclass(frozen=True, slots=True)
class Start:
    """Where a task begins when nothing is done yet: the first binlog there is, or after a GTID set."""

    gtid_set: str = ""

    @property
    def is_first(self) -> bool:
        """Nothing is named: from the first binlog there is."""
        return not self.gtid_set

    def __str__(self) -> str:
        return self.gtid_set or "first"


SYSTEM_DATABASES = frozenset(
    {"mysql", "sys", "information_schema", "performance_schema", "millrace"}
)


@dataclass(frozen=True, slots=True)
class TableFilter:
    """Which tables a task publishes: ``database.table`` patterns, ``*`` and ``?`` for any characters. Case counts,
    but at a source with lower_case_table_names 1 or 2.

    A table is admitted when an ``include`` pattern matches and no ``exclude`` pattern does. The servers' own databases,
    and ours on a target, never are.
    """

    include: tuple[str, ...] = ("*.*",)
    exclude: tuple[str, ...] = ()

    def admits(self, database: str, table: str) -> bool:
        """Whether the rows of this table are published."""
        return (
            database.lower() not in SYSTEM_DATABASES
            and any(_matches_table(p, database, table) for p in self.include)
            and not any(_matches_table(p, database, table) for p in self.exclude)
        )

    def admits_database(self, database: str) -> bool:
        """Whether statements about this database are published: some table of it could be."""
        return database.lower() not in SYSTEM_DATABASES and any(
            _matches(p.partition(".")[0], database) for p in self.include
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicOptions:
    """What a capture task asks of its topic, which is created so and checked at each start; None: the broker's."""

    replication_factor: int | None = None
    min_insync_replicas: int | None = None
    retention_ms: int | None = None  # -1: records are kept for ever


@dataclass(frozen=True, slots=True, kw_only=True)
class CaptureTask:
    """Publish one source set to one topic."""

    name: str
    set_name: str
    output: TopicAddress
    start: Start = field(default_factory=Start)
    tables: TableFilter = field(default_factory=TableFilter)
    topic_options: TopicOptions = field(default_factory=TopicOptions)

    @property
    def kind(self) -> TaskKind:
        """The kind of worker it needs."""
        return TaskKind.CAPTURE


@dataclass(frozen=True, slots=True, kw_only=True)
class ApplyRules:
    """How changes reach the target. ``lanes`` is the number of target connections used at once."""

    lanes: int = 4
    consistency: Consistency = Consistency.CAUSAL
    conflict: ConflictPolicy = ConflictPolicy.STOP


@dataclass(frozen=True, slots=True, kw_only=True)
class ApplyTask:
    """Apply one topic to one target set."""

    name: str
    source: TopicAddress
    target: str
    start: Start = field(default_factory=Start)
    rules: ApplyRules = field(default_factory=ApplyRules)

    @property
    def kind(self) -> TaskKind:
        """The kind of worker it needs."""
        return TaskKind.APPLY


TaskDocument = CaptureTask | ApplyTask


def set_of(task: TaskDocument) -> str:
    """The set whose servers the task connects to."""
    return task.set_name if isinstance(task, CaptureTask) else task.target


def address_of(task: TaskDocument) -> TopicAddress:
    """The topic that the task writes or reads."""
    return task.output if isinstance(task, CaptureTask) else task.source


def _brokers(address: TopicAddress) -> set[str]:
    """``host:port`` each, this machine under one name."""
    found = set()
    for server in address.bootstrap.lower().split(","):
        host, _, port = server.strip().rpartition(":")
        found.add(f"{'localhost' if host in _THIS_MACHINE else host}:{port}")
    return found


def _matches_table(pattern: str, database: str, table: str) -> bool:
    """The first dot of the pattern parts it, so that names with dots match the part they belong to."""
    of_database, _, of_table = pattern.partition(".")
    return _matches(of_database, database) and _matches(of_table or "*", table)


@lru_cache(maxsize=4096)  # of a few hundred bytes each: a decision is made once a table map
def _matches(pattern: str, name: str) -> bool:
    parts = (".*" if c == "*" else "." if c == "?" else re.escape(c) for c in pattern)
    return re.fullmatch("".join(parts), name, re.DOTALL) is not None
