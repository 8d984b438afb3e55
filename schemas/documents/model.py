"""Sets and tasks as frozen values.

Users write a document as YAML (``schemas.documents.text``). ZooKeeper stores it as canonical JSON
(``schemas.documents.canonical``). Code uses only these types. They check nothing: ``schemas.documents.parse`` does
with the reader in a field's annotation. A document holds references to secrets, never a secret.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Annotated, ClassVar

from millrace.schemas.documents import readers
from millrace.schemas.documents.brokers import Brokers
from millrace.schemas.documents.fields import Part
from millrace.schemas.documents.readers import integer, seconds
from millrace.schemas.documents.registry import Registry
from millrace.schemas.documents.secret import SecretReference
from millrace.schemas.documents.start import Start
from millrace.schemas.documents.tls import Tls
from millrace.schemas.record.names import escape_name
from millrace.schemas.table.table_filter import TableFilter, stars
from millrace.schemas.view.format_options import HEARTBEAT_PREFIX, FormatName, FormatOptions
from millrace.schemas.view.view import ALL_TABLES, View, filled

REPLICAS_MAX = 32767  # Kafka's own limit
LANES_MAX = 64  # target connections of one task
PARTITIONS_MAX = 10_000  # of one output topic
ACCEPTED_MAX = 1000  # statements that one document accepts
SLOTS_MAX = 64  # Kafka transactions of one task that are open at once
THREADS_MAX = 100_000  # MySQL's own limit of connections
SNAPSHOT_PATTERNS_MAX = 256  # of one request
ADDED_LATER = "added later"  # canonical JSON leaves out the default of such a field

LagLimit = Annotated[float, seconds(1, 86400)]
ThreadsLimit = Annotated[int, integer(1, THREADS_MAX)]
_Replicas = Annotated[int | None, integer(1, REPLICAS_MAX)]


class TaskKind(StrEnum):
    """The kind of a task. A worker has the kind of most of its tasks: CAPTURE or APPLY."""

    CAPTURE = "capture"
    APPLY = "apply"
    PUBLISH = "publish"

    @property
    def worker(self) -> "TaskKind":
        """The kind of the workers that can run such tasks."""
        return TaskKind.APPLY if self is TaskKind.PUBLISH else self


def progress_topic_of(task: str) -> str:
    """The internal topic with the progress of a publish task. No pattern for ``TASK.…`` subscribes to it."""
    return f"_{task}.progress"


class Consistency(StrEnum):
    """The guarantee to readers of the target while tasks run."""

    CAUSAL = "causal"
    TRANSACTIONAL = "transactional"


class Snapshot(StrEnum):
    """Whether a new topic begins with the rows that the tables have already."""

    NONE = "none"
    INITIAL = "initial"


class ConflictPolicy(StrEnum):
    """The reaction to a target row that differs from the expected one."""

    STOP = "stop"
    OVERWRITE = "overwrite"
    SKIP = "skip"


class RefusedPolicy(StrEnum):
    """The reaction to a row that the target refuses, whatever rows it has."""

    STOP = "stop"
    ASIDE = "aside"  # it is kept on the target, with all later changes of its keys


class RelayMode(StrEnum):
    """When the relay of a set receives binlog."""

    ALWAYS = "always"  # also while no task of the set runs
    WITH_TASKS = "with_tasks"  # while at least one task of the set runs
    OFF = "off"  # while tasks run; what they have read is deleted at once


class Compression(StrEnum):
    """How closed relay files are stored."""

    NONE = "none"
    ZSTD = "zstd"


class TopicCompression(StrEnum):
    """How a producer compresses its batches. Kafka keeps them so unless the topic's `compression.type` differs."""

    NONE = "none"
    GZIP = "gzip"
    SNAPPY = "snappy"
    LZ4 = "lz4"
    ZSTD = "zstd"


HEARTBEAT_TABLE = "heartbeat"


@dataclass(frozen=True, slots=True)
class Member:
    """One server of a set. Millrace asks the server for its role."""

    host: str
    port: int

    @classmethod
    def parse(cls, text: str) -> "Member":
        """The member ``host:port``; ValueError."""
        host, colon, port = text.rpartition(":")
        if not colon or not host or not (port.isascii() and port.isdigit()):
            raise ValueError(f"{text!r} is not HOST:PORT")
        return cls(host, int(port))

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class Account:
    """The account that Millrace uses on every member of a set."""

    user: str
    password: SecretReference


@dataclass(frozen=True, slots=True, kw_only=True)
class PurgeRules:
    """When relay files that no task needs are deleted without a command. 0 switches a rule off.

    ``expires_h`` is the time since the file's last change; ``remain_gb`` is free disk space in GiB.
    """

    about: ClassVar = Part("{expires_h: 72, remain_gb: 15}")
    interval_s: Annotated[int, integer(0, 7 * 86_400)] = 3600  # 0: no automatic purge
    expires_h: Annotated[int, integer(0, 10 * 366 * 24)] = 24
    remain_gb: Annotated[int, integer(0, 1 << 20)] = 15


@dataclass(frozen=True, slots=True, kw_only=True)
class RelayRules:
    """How a worker keeps the relay log of a set."""

    about: ClassVar = Part("{mode: always, purge: {expires_h: 72}}", short="mode")
    mode: RelayMode = RelayMode.WITH_TASKS
    purge: PurgeRules = field(default_factory=PurgeRules)
    # of a relay without files and tasks: "first", a GTID set, or a binlog file
    start: Annotated[str, readers.relay_start, ADDED_LATER] = "first"
    compress: Compression = Compression.NONE


@dataclass(frozen=True, slots=True, kw_only=True)
class UpstreamRules:
    """When the stream of a set leaves a member for another one. All in seconds."""

    about: ClassVar = Part("{max_lag_s: 5}")
    silence_s: Annotated[float, seconds(0.3, 3600)] = 1.5  # without an event: a member is stalled
    probe_s: Annotated[float, seconds(0.1, 60)] = 1.0  # the interval of queries of every member
    max_lag_s: LagLimit = 5.0  # a member with more lag is left if another has less
    hysteresis_s: Annotated[float, seconds(0, 86400)] = 2.0  # the other one must be better by it
    cool_down_s: Annotated[float, seconds(0, 86400)] = 60.0  # between two switches for lag


@dataclass(frozen=True, slots=True, kw_only=True)
class HeartbeatRules:
    """Whether a worker writes a row on the set's primary, into the table ``HEARTBEAT_TABLE`` of ``database``."""

    about: ClassVar = Part("{database: ops, interval_s: 10}", needed="database")
    database: Annotated[str, readers.database] = ""  # empty: no row is written
    interval_s: Annotated[float, seconds(1, 3600)] = 10.0

    @property
    def table(self) -> str:
        """The table's name in a pattern of ``TableFilter``; empty if no row is written."""
        return f"{self.database}.{HEARTBEAT_TABLE}" if self.database else ""


@dataclass(frozen=True, slots=True)
class Placement:
    """The workers that may run the relay and the capture tasks of a set, an apply task, or a publish task.

    ``labels`` are texts like ``zone=a``: only a worker that was started with all of them may.
    """

    about: ClassVar = Part("{labels: {zone: a}}", needed="labels")
    labels: Annotated[frozenset[str], readers.labels] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class SetDocument:
    """A primary and its replicas."""

    name: str
    members: tuple[Member, ...]
    account: Account
    tls: Tls = field(default_factory=Tls)
    relay: RelayRules = field(default_factory=RelayRules)
    upstream: UpstreamRules = field(default_factory=UpstreamRules)
    heartbeat: HeartbeatRules = field(default_factory=HeartbeatRules)
    placement: Placement = field(default_factory=Placement)


def stream_of(document: SetDocument) -> SetDocument:
    """The document without what only says when and where the relay runs. Streams of equal ones are the same."""
    rules = document.relay
    mode = RelayMode.WITH_TASKS if rules.mode is RelayMode.ALWAYS else rules.mode
    relay = replace(rules, mode=mode, start=RelayRules().start)
    return replace(document, relay=relay, placement=Placement())


@dataclass(frozen=True, slots=True)
class Directives:
    """An operator's wishes about the members and the relay of a set. They take effect without a new document."""

    pinned: Member | None = None  # is read while it is admissible
    drained: frozenset[Member] = frozenset()  # are not read
    relay_paused_by: str = ""  # the operator who pauses the relay: nothing is received
    # a purge request (``producer.relay.control``), while a command waits for the answer
    relay_purge: str = ""
    relay_resumed: int = 0  # counts `relay resume`, which makes a blocked relay try again


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicAddress:
    """A set's topic, and the registry of its schemas."""

    topic: str
    brokers: Brokers
    registry: Registry = field(default_factory=Registry)

    def is_same_topic(self, other: "TopicAddress") -> bool:
        """True if both name the same topic and share a broker address. Kafka detects other names of a broker."""
        return self.topic == other.topic and self.brokers.shares_address(other.brokers)

    def __str__(self) -> str:
        return f"topic {self.topic} at {self.brokers}"


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicOptions:
    """Settings of a capture task's topic, checked at each start. None: the broker's."""

    about: ClassVar = Part("{replication_factor: 3}")
    replication_factor: _Replicas = None
    min_insync_replicas: _Replicas = None
    retention_ms: Annotated[int | None, integer(-1, 2**63 - 1)] = None  # -1: forever


@dataclass(frozen=True, slots=True)
class SnapshotLimits:
    """A snapshot pauses above them: the lag of the member that it reads, and that server's Threads_running."""

    about: ClassVar = Part("{max_lag_s: 30}")
    max_lag_s: LagLimit = 30.0
    max_threads_running: ThreadsLimit = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class CaptureRules:
    """How a set topic is written.

    ``resolved_idle_s``: the longest time between two resolved records while nothing changes
    (``producer.publish.config``).
    """

    compression: Annotated[TopicCompression, ADDED_LATER] = TopicCompression.LZ4
    # Kafka closes a connection that was idle for ten minutes (connections.max.idle.ms)
    resolved_idle_s: Annotated[float, seconds(5, 600), ADDED_LATER] = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class CaptureTask:
    """Publish one source set to one topic. ``snapshot`` counts only for a topic that never had a record."""

    name: str
    set_name: str
    output: TopicAddress
    start: Start = field(default_factory=Start)
    tables: TableFilter = field(default_factory=TableFilter)
    topic_options: TopicOptions = field(default_factory=TopicOptions)
    snapshot: Snapshot = Snapshot.NONE
    snapshot_limits: SnapshotLimits = field(default_factory=SnapshotLimits)
    rules: CaptureRules = field(default_factory=CaptureRules)

    @property
    def kind(self) -> TaskKind:
        """The kind of the task."""
        return TaskKind.CAPTURE

    @property
    def begins_with_rows(self) -> bool:
        """Whether a new topic begins with the rows that the tables have already."""
        return self.snapshot is Snapshot.INITIAL


@dataclass(frozen=True, slots=True)
class SafeMode:
    """The source transactions whose rows the target may already have; "" is none (``consumer.window.safe_mode``)."""

    about: ClassVar = Part("{until_gtid: 0-1-23}", needed="until_gtid")
    until_gtid: Annotated[str, readers.gtid_set] = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadRules:
    """How rows that exist on the source are copied (``consumer.load``).

    ``parallel`` is the number of chunks that are copied at once. A chunk has at most ``chunk_rows`` rows, and about
    8 MB. The load pauses above the two limits: the lag of the replica that is read, and the target's Threads_running.
    ``new_tables``: tables that the task admits since its document was changed are loaded, too.
    """

    about: ClassVar = Part("{parallel: 4, max_lag_s: 30}")
    parallel: Annotated[int, integer(1, LANES_MAX)] = 4
    chunk_rows: Annotated[int, integer(1, 10_000_000)] = 100_000
    max_lag_s: LagLimit = 30.0
    max_threads_running: ThreadsLimit = 32
    from_primary: bool = False
    new_tables: bool = True


class StructureRule(StrEnum):
    """How a comparison treats definitions that differ.

    REPORT: they are listed. FAIL: they also count as differences. IGNORE: they are not read.
    """

    REPORT = "report"
    FAIL = "fail"
    IGNORE = "ignore"


@dataclass(frozen=True, slots=True, kw_only=True)
class CompareRules:
    """How often source and target are compared beside the task (``consumer.compare.task_comparison``).

    ``every_h``: from the end of a comparison to the begin of the next; 0: never. ``repair``: differences get the
    source's rows. The comparison pauses above the two limits: how long the target needs to contain what the source has,
    and Threads_running of either server.
    """

    about: ClassVar = Part("{every_h: 24, repair: false}", needed="every_h")
    every_h: Annotated[int, integer(1, 366 * 24)] = 0
    repair: bool = False
    structure: Annotated[StructureRule, ADDED_LATER] = StructureRule.REPORT
    max_lag_s: LagLimit = 30.0
    max_threads_running: ThreadsLimit = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class ApplyRules:
    """How changes are applied. ``lanes`` is the number of concurrent target connections."""

    lanes: Annotated[int, integer(1, LANES_MAX)] = 4
    consistency: Consistency = Consistency.CAUSAL
    conflict: ConflictPolicy = ConflictPolicy.STOP
    refused: RefusedPolicy = RefusedPolicy.STOP
    safe_mode: SafeMode = field(default_factory=SafeMode)
    load: LoadRules = field(default_factory=LoadRules)
    compare: CompareRules = field(default_factory=CompareRules)


@dataclass(frozen=True, slots=True, kw_only=True)
class ApplyTask:
    """Apply one topic to one target set."""

    name: str
    source: TopicAddress
    target: str
    start: Start = field(default_factory=Start)
    view: View = ALL_TABLES
    rules: ApplyRules = field(default_factory=ApplyRules)
    placement: Placement = field(default_factory=Placement)

    @property
    def kind(self) -> TaskKind:
        """The kind of the task."""
        return TaskKind.APPLY


class PartitionBy(StrEnum):
    """The part of a record that decides about its partition in the output topic."""

    KEY = "key"  # the record's key, as Kafka's own producers decide
    TABLE = "table"  # all rows of a table are in one partition


@dataclass(frozen=True, slots=True)
class PartitionRule:
    """``columns`` of the record's key decide about the partition, for the tables that ``table`` matches in the view."""

    table: str
    columns: tuple[str, ...]


class CleanupPolicy(StrEnum):
    """How Kafka removes old records of an output topic."""

    DELETE = "delete"
    COMPACT = "compact"
    COMPACT_DELETE = "compact,delete"


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputSettings:
    """Settings of a publish task's topics, used to create them; ``millrace check`` compares. None: the broker's."""

    about: ClassVar = Part("{replication_factor: 3}")
    replication_factor: _Replicas = None
    min_insync_replicas: _Replicas = None
    retention_ms: Annotated[int | None, integer(-1, 2**63 - 1)] = None  # -1: forever
    cleanup_policy: Annotated[CleanupPolicy | None, readers.choice(CleanupPolicy)] = None


OUTPUT_PATTERN = "{task}.{database}.{table}"


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputTopics:
    """The topics of a publish task. ``pattern`` names that of a table, by its names in the view.

    ``partition_by``: the first rule that matches a table decides, and KEY if none does. ``slots`` is fixed for the
    task's life: the parts of the task that commit independently of each other. ``suffix`` ends the names of the topics
    that a rebuild writes; the schemas of their records have the names without it.
    """

    pattern: str = OUTPUT_PATTERN
    partitions: int = 1
    partition_by: PartitionBy | tuple[PartitionRule, ...] = PartitionBy.KEY
    slots: int = 1
    compression: TopicCompression = TopicCompression.GZIP  # every client reads it
    settings: OutputSettings = field(default_factory=OutputSettings)
    suffix: str = ""

    def name_of(self, task: str, database: str, table: str) -> str:
        """The topic of a table. Database and table are escaped as record names are (``schemas.record.names``)."""
        texts = {"task": task, "database": escape_name(database), "table": escape_name(table)}
        return filled(self.pattern, texts) + self.suffix

    def pattern_of(self, task: str) -> str:
        """The pattern with the task's name, such as ``shop.{database}.{table}``."""
        return self.pattern.replace("{task}", task)

    def prefix(self, task: str) -> str:
        """The first part of the names of all topics; it may be empty."""
        return self.pattern_of(task).partition("{")[0]

    def partition_columns(self, database: str, table: str) -> tuple[str, ...] | None:
        """The columns that decide about a table's partitions, by its names in the view; None without such a rule."""
        rules = () if isinstance(self.partition_by, PartitionBy) else self.partition_by
        of_table = (
            rule.columns for rule in rules if stars(rule.table, database, table) is not None
        )
        return next(of_table, None)


DEFAULT_FORMAT = FormatOptions.of(FormatName.DEBEZIUM_JSON)


class OnChange(StrEnum):
    """Where rows go after a change of the document by which delivered rows differ."""

    CONTINUE = "continue"
    NEW_TOPICS = "new_topics"


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishTask:
    """Publish what a view makes of one set topic, to topics for subscribers at the same brokers.

    ``accept_ddl``: the seqs of statements that the task passes, though delivered rows may differ from the view.
    """

    name: str
    source: TopicAddress
    start: Start = field(default_factory=Start)
    view: View = ALL_TABLES
    topics: OutputTopics = field(default_factory=OutputTopics)
    format: FormatOptions = DEFAULT_FORMAT
    on_change: OnChange = OnChange.CONTINUE
    accept_ddl: tuple[int, ...] = ()
    placement: Placement = field(default_factory=Placement)

    @property
    def kind(self) -> TaskKind:
        """The kind of the task."""
        return TaskKind.PUBLISH

    @property
    def snapshot_tables(self) -> tuple[str, ...]:
        """The patterns of the tables whose rows `start: snapshot` asks for. The view takes its own among them."""
        patterns = dict.fromkeys(rule.source for rule in self.view.rules if not rule.is_left_out)
        return tuple(patterns) if len(patterns) <= SNAPSHOT_PATTERNS_MAX else ("*.*",)

    @property
    def progress_topic(self) -> str:
        """The internal topic with its progress."""
        return progress_topic_of(self.name)

    @property
    def heartbeat_topic(self) -> str:
        """The topic of its heartbeats; "" if it writes none."""
        if not self.format.heartbeat_ms:
            return ""
        return self.format.heartbeat_topic or f"{HEARTBEAT_PREFIX}.{self.name}"

    @property
    def other_topics(self) -> Mapping[str, str]:
        """Its output topics that are of no table, by the option in ``records`` that names them."""
        names = {
            "transaction_topic": self.format.transaction_topic,
            "heartbeat_topic": self.heartbeat_topic,
            "schema_change_topic": self.format.schema_change_topic,
        }
        return {option: name for option, name in names.items() if name}


Reader = ApplyTask | PublishTask  # reads a set topic, on an apply worker
TaskDocument = CaptureTask | Reader


@dataclass(frozen=True, slots=True)
class RelayTask:
    """Receive a set's binlog, whether or not another task needs it now.

    It has no document: ``relay: always`` in the set's document creates it.
    """

    set_name: str

    @property
    def name(self) -> str:
        """Its name in ZooKeeper. The colon keeps it apart from the names of documents."""
        return f"relay:{self.set_name}"

    @property
    def kind(self) -> TaskKind:
        """The kind of the task."""
        return TaskKind.CAPTURE


Work = TaskDocument | RelayTask  # whatever a worker can run


def set_of(task: Work) -> str:
    """The set whose servers the task connects to; "" of a publish task, which connects to none."""
    if isinstance(task, PublishTask):
        return ""
    return task.target if isinstance(task, ApplyTask) else task.set_name


def address_of(task: TaskDocument) -> TopicAddress:
    """The topic that the task writes or reads."""
    return task.output if isinstance(task, CaptureTask) else task.source


def names_of(task: Work) -> dict[str, str]:
    """The names that fill the places of a fix (``millrace.wording``). A relay is no task."""
    if isinstance(task, RelayTask):
        return {"set": task.set_name}
    names = {"task": task.name, "set": set_of(task), "topic": address_of(task).topic}
    return {place: name for place, name in names.items() if name}
