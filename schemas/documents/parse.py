"""Parses plain values from YAML or JSON into documents.

Users write flat documents; the values in code are nested:

    set: shop                              task: shop-capture            task: shop-to-warehouse
    members: [{host: h, port: 3306}, …]    kind: capture                 kind: apply
    user: millrace                         set: shop                     topic: shop
    password: env:NAME | file:/path        topic: shop  (the set's)      kafka: {bootstrap: "h:9092"}
    tls: verify-identity (default)         kafka: {bootstrap: "h:9092"}  registry: http://h:8081  (optional)
    tls_ca: /path/ca.pem                   registry: http://h:8081       target: warehouse
    relay: with_tasks | {mode: …}          start: first | GTID set       start: first | GTID set
    upstream: {max_lag_s: 5, …}            include: ["*.*"]              lanes: 4
    heartbeat: {database: ops, …}          exclude: []                   consistency: causal
    placement: {labels: {zone: a}}         topic_settings: {…}           conflict: stop | overwrite | skip
                                                                         safe_mode: {until_gtid: GTID set}
                                                                         load: {parallel: 4, …}
                                                                         compare: {every_h: 24, …}
                                                                         placement: {labels: {zone: a}}

Guarantees: a document is accepted or refused as a whole, and one error lists every problem (MR-4101). ``format`` is
optional; an unknown one is refused (MR-4107).
"""

from millrace.errors import Fatal
from schemas.documents import readers
from schemas.documents.fields import Fields, Problem, Unreadable, refuse_if_any
from schemas.documents.kafka import take_brokers
from schemas.documents.model import (
    Account,
    ApplyRules,
    ApplyTask,
    CaptureTask,
    CompareRules,
    Compression,
    ConflictPolicy,
    Consistency,
    HeartbeatRules,
    LoadRules,
    Member,
    Placement,
    PurgeRules,
    RelayMode,
    RelayRules,
    SafeMode,
    SetDocument,
    Snapshot,
    SnapshotLimits,
    StructureRule,
    TaskDocument,
    TaskKind,
    TopicAddress,
    TopicOptions,
    UpstreamRules,
)
from schemas.documents.registry import take_registry
from schemas.documents.secret import SecretPlace, SecretReference
from schemas.documents.start import Start
from schemas.documents.table_filter import TableFilter
from schemas.documents.tls import Tls, TlsMode
from schemas.throttle import Limits

FORMAT = 1  # of set and task documents; a change that old programs would misread raises it
MEMBERS_MAX = 64
PATTERNS_MAX = 1000
REPLICAS_MAX = 32767  # Kafka's own limit
RETENTION_MS_MAX = 2**63 - 1
LANES_MAX = 64  # target connections of one task
EVERY_H_MAX = 366 * 24
CHUNK_ROWS_MAX = 10_000_000
THREADS_MAX = 100_000  # MySQL's own limit of connections
PURGE_INTERVAL_S_MAX = 7 * 86_400
EXPIRES_H_MAX = 10 * 366 * 24
REMAIN_GB_MAX = 1 << 20

_MEMBER = "{host: db1, port: 3306}"
_NO_SECRET = SecretReference(SecretPlace.ENVIRONMENT, "UNSET")


def parse_set(plain: object, *, origin: str = "set document") -> SetDocument:
    """A set document; Fatal MR-4101, MR-4107. ``origin`` names the document in the error."""
    _check_format(plain, origin)
    if isinstance(plain, dict) and "task" in plain and "members" not in plain:
        raise _misplaced(origin, is_a="task", not_a="set")
    problems: list[Problem] = []
    fields = Fields(plain, "", problems)
    take_format(fields)
    document = take_set(fields)
    fields.finish()
    refuse_if_any(problems, origin, document.name)
    return document


def parse_task(plain: object, *, origin: str = "task document") -> TaskDocument:
    """A task document of either kind; Fatal MR-4101, MR-4107."""
    _check_format(plain, origin)
    if isinstance(plain, dict) and "members" in plain and "task" not in plain:
        raise _misplaced(origin, is_a="set", not_a="task")
    problems: list[Problem] = []
    fields = Fields(plain, "", problems)
    take_format(fields)
    kind: TaskKind | None = fields.take("kind", _kind, None)
    document: TaskDocument | None = None
    if kind is not None:
        document = take_task(fields, kind)
    if kind is not None:  # the fields of an unknown kind are unknown
        fields.finish()
    refuse_if_any(problems, origin, document.name if document else "")
    assert document is not None, "a missing kind is a problem"
    return document


def take_set(fields: Fields) -> SetDocument:
    """Read every field of a set document except ``format``."""
    return SetDocument(
        name=fields.take("set", readers.name, ""),
        members=_members(fields),
        account=Account(
            fields.take("user", readers.text("a user name"), ""),
            fields.take("password", readers.secret, _NO_SECRET),
        ),
        tls=Tls(
            fields.take("tls", readers.choice(TlsMode), TlsMode.VERIFY_IDENTITY, needed=False),
            fields.take("tls_ca", readers.text("the path of a PEM file"), "", needed=False),
        ),
        relay=_relay(fields),
        upstream=_upstream(fields),
        heartbeat=_heartbeat(fields),
        placement=_placement(fields),
    )


def _upstream(fields: Fields) -> UpstreamRules:
    part = fields.part("upstream", needed=False, example="{max_lag_s: 5}")
    defaults = UpstreamRules()

    def take(name: str, low: float, high: float) -> float:
        fallback: float = getattr(defaults, name)
        return part.take(name, readers.seconds(low, high), fallback, needed=False)

    rules = UpstreamRules(
        silence_s=take("silence_s", 0.3, 3600),
        probe_s=take("probe_s", 0.1, 60),
        max_lag_s=take("max_lag_s", 1, 86400),
        hysteresis_s=take("hysteresis_s", 0, 86400),
        cool_down_s=take("cool_down_s", 0, 86400),
    )
    part.finish()
    return rules


def _heartbeat(fields: Fields) -> HeartbeatRules:
    part = fields.part("heartbeat", needed=False, example="{database: ops, interval_s: 10}")
    rules = HeartbeatRules(
        database=part.take("database", readers.database, ""),
        interval_s=part.take(
            "interval_s", readers.seconds(1, 3600), HeartbeatRules().interval_s, needed=False
        ),
    )
    part.finish()
    return rules


def take_task(fields: Fields, kind: TaskKind) -> TaskDocument:
    """Read every field of a task document of this kind except ``format`` and ``kind``."""
    return _capture(fields) if kind is TaskKind.CAPTURE else _apply(fields)


def _capture(fields: Fields) -> CaptureTask:
    set_name = fields.take("set", readers.name, "")
    return CaptureTask(
        name=fields.take("task", readers.name, ""),
        set_name=set_name,
        output=TopicAddress(
            topic=fields.take("topic", readers.topic, set_name, needed=False),
            brokers=take_brokers(fields),
            registry=take_registry(fields, needed=True),
        ),
        start=fields.take("start", readers.start, Start(), needed=False),
        tables=_tables(fields),
        topic_options=_topic_options(fields),
        snapshot=fields.take("snapshot", readers.choice(Snapshot), Snapshot.NONE, needed=False),
        snapshot_limits=_snapshot_limits(fields),
    )


def _apply(fields: Fields) -> ApplyTask:
    return ApplyTask(
        name=fields.take("task", readers.name, ""),
        source=TopicAddress(
            topic=fields.take("topic", readers.topic, ""),
            brokers=take_brokers(fields),
            registry=take_registry(fields, needed=False),
        ),
        target=fields.take("target", readers.name, ""),
        start=fields.take("start", readers.apply_start, Start(), needed=False),
        tables=_tables(fields),
        rules=ApplyRules(
            lanes=fields.take("lanes", readers.integer(1, LANES_MAX), 4, needed=False),
            consistency=fields.take(
                "consistency", readers.choice(Consistency), Consistency.CAUSAL, needed=False
            ),
            conflict=fields.take(
                "conflict", readers.choice(ConflictPolicy), ConflictPolicy.STOP, needed=False
            ),
            safe_mode=_safe_mode(fields),
            load=_load(fields),
            compare=_compare(fields),
        ),
        placement=_placement(fields),
    )


def _placement(fields: Fields) -> Placement:
    part = fields.part("placement", needed=False, example="{labels: {zone: a}}")
    none = Placement().labels
    labels = part.take("labels", readers.labels, none)
    part.finish()
    return Placement(labels)


def _safe_mode(fields: Fields) -> SafeMode:
    part = fields.part("safe_mode", needed=False, example="{until_gtid: 0-1-23}")
    until = part.take("until_gtid", readers.gtid_set, "")
    part.finish()
    return SafeMode(until)


def _load(fields: Fields) -> LoadRules:
    part = fields.part("load", needed=False, example="{parallel: 4, max_lag_s: 30}")
    default = LoadRules()
    rules = LoadRules(
        parallel=part.take(
            "parallel", readers.integer(1, LANES_MAX), default.parallel, needed=False
        ),
        chunk_rows=part.take(
            "chunk_rows", readers.integer(1, CHUNK_ROWS_MAX), default.chunk_rows, needed=False
        ),
        max_lag_s=_lag_limit(part, default),
        max_threads_running=_threads_limit(part, default),
        from_primary=part.take("from_primary", readers.flag, default.from_primary, needed=False),
        new_tables=part.take("new_tables", readers.flag, default.new_tables, needed=False),
    )
    part.finish()
    return rules


def _snapshot_limits(fields: Fields) -> SnapshotLimits:
    part = fields.part("snapshot_limits", needed=False, example="{max_lag_s: 30}")
    default = SnapshotLimits()
    limits = SnapshotLimits(_lag_limit(part, default), _threads_limit(part, default))
    part.finish()
    return limits


def _lag_limit(part: Fields, default: Limits) -> float:
    return part.take("max_lag_s", readers.seconds(1, 86400), default.max_lag_s, needed=False)


def _threads_limit(part: Fields, default: Limits) -> int:
    wanted = readers.integer(1, THREADS_MAX)
    return part.take("max_threads_running", wanted, default.max_threads_running, needed=False)


def _compare(fields: Fields) -> CompareRules:
    part = fields.part("compare", needed=False, example="{every_h: 24, repair: false}")
    default = CompareRules()
    rules = CompareRules(
        every_h=part.take("every_h", readers.integer(1, EVERY_H_MAX), default.every_h),
        repair=part.take("repair", readers.flag, default.repair, needed=False),
        structure=part.take(
            "structure", readers.choice(StructureRule), default.structure, needed=False
        ),
        max_lag_s=_lag_limit(part, default),
        max_threads_running=_threads_limit(part, default),
    )
    part.finish()
    return rules


def _tables(fields: Fields) -> TableFilter:
    pattern = readers.table_pattern
    return TableFilter(
        fields.take_each("include", pattern, default=("*.*",), count_max=PATTERNS_MAX),
        fields.take_each("exclude", pattern, default=(), count_max=PATTERNS_MAX),
    )


def _topic_options(fields: Fields) -> TopicOptions:
    part = fields.part("topic_settings", needed=False, example="{replication_factor: 3}")
    replicas = readers.integer(1, REPLICAS_MAX)
    options = TopicOptions(
        replication_factor=part.take("replication_factor", replicas, None, needed=False),
        min_insync_replicas=part.take("min_insync_replicas", replicas, None, needed=False),
        retention_ms=part.take(
            "retention_ms", readers.integer(-1, RETENTION_MS_MAX), None, needed=False
        ),
    )
    part.finish()
    if (options.min_insync_replicas or 0) > (options.replication_factor or REPLICAS_MAX):
        wanted = f"at most replication_factor, {options.replication_factor}"
        part.refuse("min_insync_replicas", str(options.min_insync_replicas), wanted)
    return options


def _relay(fields: Fields) -> RelayRules:
    example = "{mode: always, purge: {expires_h: 72}}"
    part = fields.part("relay", needed=False, example=example, short="mode")
    mode = part.take("mode", readers.choice(RelayMode), RelayMode.WITH_TASKS, needed=False)
    purge = part.part("purge", needed=False, example="{expires_h: 72, remain_gb: 15}")
    default = PurgeRules()
    rules = PurgeRules(
        interval_s=purge.take(
            "interval_s",
            readers.integer(0, PURGE_INTERVAL_S_MAX),
            default.interval_s,
            needed=False,
        ),
        expires_h=purge.take(
            "expires_h", readers.integer(0, EXPIRES_H_MAX), default.expires_h, needed=False
        ),
        remain_gb=purge.take(
            "remain_gb", readers.integer(0, REMAIN_GB_MAX), default.remain_gb, needed=False
        ),
    )
    purge.finish()
    start = part.take("start", readers.relay_start, "first", needed=False)
    compress = part.take("compress", readers.choice(Compression), Compression.NONE, needed=False)
    part.finish()
    return RelayRules(mode=mode, start=start, purge=rules, compress=compress)


def _members(fields: Fields) -> tuple[Member, ...]:
    members: list[Member] = []
    for index, part in enumerate(fields.parts("members", example=_MEMBER, count_max=MEMBERS_MAX)):
        member = Member(
            part.take("host", readers.host, ""),
            part.take("port", readers.integer(1, 65535), 3306, needed=False),
        )
        part.finish()
        if member.host and member in members:
            fields.refuse(f"members[{index}]", str(member), "each server once")
        members.append(member)
    return tuple(members)


def _kind(value: object) -> TaskKind | None:
    return readers.choice(TaskKind)(value)


def take_format(fields: Fields) -> None:
    """Read the version of the document's format."""
    fields.take("format", _version, FORMAT, needed=False)


@readers.described(type="integer", minimum=1, maximum=FORMAT)
def _version(value: object) -> int:
    try:
        return readers.integer(1, FORMAT)(value)
    except Unreadable as exc:
        wanted = f"{FORMAT}, the version of the document's layout"
        if isinstance(value, str):
            wanted += ". Records are always Avro"
        raise Unreadable(wanted) from exc


def _check_format(plain: object, origin: str) -> None:
    """Fatal MR-4107 for a newer format: its other fields are unknown."""
    version = plain.get("format") if isinstance(plain, dict) else None
    if isinstance(version, int) and not isinstance(version, bool) and version > FORMAT:
        raise Fatal("MR-4107", f"{origin} has format {version}, this program knows up to {FORMAT}")


def _misplaced(origin: str, *, is_a: str, not_a: str) -> Fatal:
    """The fields may be right, but the document was given to the wrong command."""
    return Fatal(
        "MR-4101",
        f"{origin} is the document of a {is_a}, not of a {not_a}",
        fix=f"Give it to `millrace {is_a} create -f FILE`.",
    )
