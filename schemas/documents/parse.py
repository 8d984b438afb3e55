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
                                                                         refused: stop | aside
                                           compression: lz4              safe_mode: {until_gtid: GTID set}
                                           resolved_idle_s: 60           load: {parallel: 4, …}
                                                                         compare: {every_h: 24, …}
                                                                         placement: {labels: {zone: a}}

A publish task has ``topic``, ``kafka``, ``registry``, ``start`` and ``placement`` as an apply task has, and the fields
of ``schemas.documents.publish``.

Guarantees: a document is accepted or refused as a whole, and one error lists every problem (MR-4101). ``format`` is
optional; an unknown one is refused (MR-4107).
"""

import dataclasses
from collections.abc import Callable
from typing import Annotated, Any, TypeVar, get_args, get_origin

from millrace.errors import Fatal
from millrace.schemas.documents import readers
from millrace.schemas.documents.fields import Fields, Part, Problem, Unreadable, refuse_if_any
from millrace.schemas.documents.kafka import take_brokers
from millrace.schemas.documents.model import (
    ACCEPTED_MAX,
    REPLICAS_MAX,
    Account,
    ApplyRules,
    ApplyTask,
    CaptureRules,
    CaptureTask,
    Consistency,
    HeartbeatRules,
    Member,
    OnChange,
    OutputSettings,
    Placement,
    PublishTask,
    RefusedPolicy,
    RelayRules,
    SetDocument,
    Snapshot,
    SnapshotLimits,
    TaskDocument,
    TaskKind,
    TopicAddress,
    TopicOptions,
    UpstreamRules,
)
from millrace.schemas.documents.publish import (
    refuse_missing_registry,
    refuse_own_topics,
    take_records,
    take_topics,
)
from millrace.schemas.documents.registry import take_registry
from millrace.schemas.documents.secret import SecretPlace, SecretReference
from millrace.schemas.documents.start import Start
from millrace.schemas.documents.tls import Tls, TlsMode
from millrace.schemas.documents.view import refuse_unbuilt, take_task_view
from millrace.schemas.table.table_filter import TableFilter

FORMAT = 1  # of set and task documents; a change that old programs would misread raises it
MEMBERS_MAX = 64
PATTERNS_MAX = 1000

_MEMBER = "{host: db1, port: 3306}"
R = TypeVar("R")
S = TypeVar("S", TopicOptions, OutputSettings)
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
    """A task document of any kind; Fatal MR-4101, MR-4107."""
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
        relay=_take_part(fields, "relay", RelayRules),
        upstream=_take_part(fields, "upstream", UpstreamRules),
        heartbeat=_take_part(fields, "heartbeat", HeartbeatRules),
        placement=_take_part(fields, "placement", Placement),
    )


def take_task(fields: Fields, kind: TaskKind) -> TaskDocument:
    """Read every field of a task document of this kind except ``format`` and ``kind``."""
    match kind:
        case TaskKind.CAPTURE:
            return _capture(fields)
        case TaskKind.APPLY:
            return _apply(fields)
        case TaskKind.PUBLISH:
            return _publish(fields)


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
        topic_options=_topic_settings(fields, TopicOptions),
        snapshot=fields.take("snapshot", readers.choice(Snapshot), Snapshot.NONE, needed=False),
        snapshot_limits=_take_part(fields, "snapshot_limits", SnapshotLimits),
        rules=_take_fields(fields, CaptureRules),
    )


def _apply(fields: Fields) -> ApplyTask:
    task = ApplyTask(
        name=fields.take("task", readers.name, ""),
        source=TopicAddress(
            topic=fields.take("topic", readers.topic, ""),
            brokers=take_brokers(fields),
            registry=take_registry(fields, needed=False),
        ),
        target=fields.take("target", readers.name, ""),
        start=fields.take("start", readers.apply_start, Start(), needed=False),
        view=take_task_view(fields),
        rules=_take_fields(fields, ApplyRules),
        placement=_take_part(fields, "placement", Placement),
    )
    refuse_unbuilt(fields, task)
    rules = task.rules
    if rules.refused is RefusedPolicy.ASIDE and rules.consistency is Consistency.TRANSACTIONAL:
        fields.refuse("refused", "aside", "stop, because consistency is transactional")
    return task


def _publish(fields: Fields) -> PublishTask:
    task = PublishTask(
        name=fields.take("task", readers.name, ""),
        source=TopicAddress(
            topic=fields.take("topic", readers.topic, ""),
            brokers=take_brokers(fields),
            registry=take_registry(fields, needed=False),
        ),
        start=fields.take("start", readers.publish_start, Start(), needed=False),
        view=take_task_view(fields),
        topics=take_topics(fields, _topic_settings(fields, OutputSettings)),
        format=take_records(fields),
        on_change=fields.take(
            "on_change", readers.choice(OnChange), OnChange.CONTINUE, needed=False
        ),
        accept_ddl=fields.take_each(
            "accept_ddl", readers.integer(1, 2**63 - 1), default=(), count_max=ACCEPTED_MAX
        ),
        placement=_take_part(fields, "placement", Placement),
    )
    refuse_own_topics(fields, task)
    refuse_missing_registry(fields, task)
    return task


def _tables(fields: Fields) -> TableFilter:
    pattern = readers.table_pattern
    return TableFilter(
        fields.take_each("include", pattern, default=("*.*",), count_max=PATTERNS_MAX),
        fields.take_each("exclude", pattern, default=(), count_max=PATTERNS_MAX),
    )


def _topic_settings(fields: Fields, kind: type[S]) -> S:
    options = _take_part(fields, "topic_settings", kind)
    if (options.min_insync_replicas or 0) > (options.replication_factor or REPLICAS_MAX):
        wanted = f"at most replication_factor, {options.replication_factor}"
        replicas = str(options.min_insync_replicas)
        fields.refuse("topic_settings.min_insync_replicas", replicas, wanted)
    return options


def _take_part(fields: Fields, name: str, kind: Callable[..., R]) -> R:
    """A mapping as a dataclass; its defaults if it is absent."""
    about: Part = kind.about  # type: ignore[attr-defined]  # of a class of ``model``
    part = fields.part(name, needed=False, example=about.example, short=about.short)
    rules = _take_fields(part, kind, needed=about.needed)
    part.finish()
    return rules


def _take_fields(fields: Fields, kind: Callable[..., R], *, needed: str = "") -> R:
    """A dataclass, each field with the reader in its annotation, or with that of its type."""
    defaults, values = kind(), {}
    for field in dataclasses.fields(kind):  # type: ignore[arg-type]  # a class of ``model``
        name, hint = field.name, field.type
        if callable(hint) and hasattr(hint, "about"):
            values[name] = _take_part(fields, name, hint)
            continue
        default = getattr(defaults, name)
        values[name] = fields.take(name, _reader(hint), default, needed=name == needed)
    return kind(**values)


def _reader(hint: Any) -> Callable[[object], object]:
    inner, *marks = get_args(hint) if get_origin(hint) is Annotated else (hint,)
    by_type = readers.flag if inner is bool else None
    return next(filter(callable, marks), None) or by_type or readers.choice(inner)


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
            wanted += ". The format of a publish task's records is in the field `records`"
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
