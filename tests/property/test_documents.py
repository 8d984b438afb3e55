"""Documents with arbitrary input survive the round trip, and no input crashes the parser."""

import json
from collections.abc import Callable
from typing import TypeVar

from hypothesis import given
from hypothesis import strategies as st

from millrace.errors import Fatal
from millrace.schemas.documents import (
    Account,
    ApplyRules,
    ApplyTask,
    Brokers,
    CaptureRules,
    CaptureTask,
    CleanupPolicy,
    ClientCertificate,
    CompareRules,
    ConflictPolicy,
    Consistency,
    LoadRules,
    Mechanism,
    Member,
    OnChange,
    OutputSettings,
    OutputTopics,
    PartitionBy,
    PartitionRule,
    Placement,
    PublishTask,
    PurgeRules,
    Registry,
    RelayMode,
    RelayRules,
    SafeMode,
    Sasl,
    SecretPlace,
    SecretReference,
    SetDocument,
    SnapshotLimits,
    Start,
    TableFilter,
    TaskDocument,
    Tls,
    TlsMode,
    TopicAddress,
    TopicCompression,
    UpstreamRules,
    canonical_json,
    field_changes,
    parse_set,
    parse_task,
    plain_from_yaml,
    plain_set,
    plain_task,
)
from millrace.schemas.documents.json_schema import set_schema, task_schema
from millrace.schemas.view.format_options import (
    DecimalMode,
    FormatName,
    FormatOptions,
    TimeMode,
    Types,
    ZeroDates,
)
from millrace.schemas.view.view import Mask, MaskKind, TableRule, View, view_of_filter
from millrace.zk.tree.documents import Document, plain_document
from tests.kit.json_schema import accepts

T = TypeVar("T")
NAMES = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._-]{0,20}", fullmatch=True)
UUID = "3e11fa47-71ca-11e1-9e33-c80aa9429562"
STARTS = st.sampled_from([Start(), Start(f"{UUID}:1-5:blue:3"), Start("0-1-5,1-2-3")])
APPLY_STARTS = st.one_of(STARTS, st.just(Start(is_load=True)))
REFERENCES = st.builds(
    SecretReference, st.just(SecretPlace.ENVIRONMENT), st.sampled_from(["A", "_b9"])
)
PLACEMENTS = st.builds(
    Placement, st.frozensets(st.sampled_from(["zone=a", "zone.1=b_c", "disk=big"]), max_size=1)
)
SETS = st.builds(
    SetDocument,
    name=NAMES,
    members=st.lists(
        st.builds(
            Member, st.sampled_from(["a", "10.0.0.1", "::1", "db-1.x"]), st.integers(1, 65535)
        ),
        min_size=1,
        max_size=5,
        unique=True,
    ).map(tuple),
    account=st.builds(Account, st.sampled_from(["millrace", "ü x"]), REFERENCES),
    tls=st.builds(Tls, st.sampled_from(TlsMode), st.sampled_from(["", "/ca.pem"])),
    relay=st.builds(RelayRules, mode=st.sampled_from(RelayMode), purge=st.builds(PurgeRules)),
    upstream=st.builds(UpstreamRules, max_lag_s=st.sampled_from([5.0, 6.0])),
    placement=PLACEMENTS,
)
PATTERNS = st.lists(st.sampled_from(["*.*", "shop.*", "a.b.c", "ü.?"]), max_size=3).map(tuple)
BOOTSTRAPS = st.sampled_from(["h:1", "127.0.0.1:9092,[::1]:9093"])
TLS = st.builds(
    Tls,
    st.sampled_from([TlsMode.VERIFY_IDENTITY, TlsMode.VERIFY_CA]),
    st.sampled_from(["", "/ca.pem"]),
)
LOGINS = st.one_of(
    st.builds(
        Sasl,
        st.sampled_from([Mechanism.PLAIN, Mechanism.SCRAM_SHA_256, Mechanism.SCRAM_SHA_512]),
        REFERENCES,
        st.sampled_from(["millrace", "ü x"]),
    ),
    st.builds(Sasl, st.just(Mechanism.OAUTHBEARER), REFERENCES),
)
CERTIFICATES = st.builds(ClientCertificate, st.just("/c.pem"), REFERENCES, st.none() | REFERENCES)
BROKERS = st.one_of(
    st.builds(Brokers, BOOTSTRAPS),
    st.builds(Brokers, BOOTSTRAPS, TLS, st.none() | CERTIFICATES, st.none() | LOGINS),
)
REGISTRIES = st.one_of(
    st.builds(Registry, st.sampled_from(["http://h:1", "https://h/x"])),
    st.builds(
        Registry,
        st.just("https://h:1"),
        st.sampled_from(["", "/ca.pem"]),
        st.sampled_from(["", "ü"]),
        REFERENCES,
    ),
)
ADDRESSES = st.builds(
    TopicAddress,
    topic=NAMES,
    brokers=BROKERS,
    registry=REGISTRIES,
)
RULES = st.builds(
    TableRule,
    source=st.sampled_from(["shop.*", "*.order_*"]),
    target=st.sampled_from(["{database}.{table}", "x.{1}"]),
    where=st.sampled_from(["", "(`id` = 1)"]),
    drop=st.sampled_from([(), ("note",)]),
    rename=st.sampled_from([(), (("mail", "email"),)]),
    add=st.sampled_from([(), (("shard", "{1}"), ("zero", 0))]),
    masks=st.sampled_from(
        [
            (),
            (
                ("card", Mask(MaskKind.REDACT)),
                ("mail", Mask(MaskKind.HMAC, secret="file:/salt")),
                ("name", Mask(MaskKind.TRUNCATE, length=1)),
            ),
        ]
    ),
    merge=st.booleans(),
)
VIEWS = st.one_of(
    st.builds(TableFilter, PATTERNS.filter(bool), PATTERNS).map(view_of_filter),
    st.lists(RULES, min_size=1, max_size=3).map(tuple).map(View),
)
TOPICS = st.builds(
    OutputTopics,
    pattern=st.sampled_from(["{task}.{database}.{table}", "public.{table}", "all"]),
    partitions=st.integers(1, 9),
    partition_by=st.sampled_from(PartitionBy)
    | st.just((PartitionRule("shop.*", ("id", "day")), PartitionRule("*.*", ("id",)))),
    slots=st.integers(1, 3),
    compression=st.sampled_from(TopicCompression),
    settings=st.builds(
        OutputSettings,
        retention_ms=st.none() | st.just(-1),
        cleanup_policy=st.none() | st.sampled_from(CleanupPolicy),
    ),
)
FORMATS = st.one_of(
    st.builds(
        FormatOptions,
        st.just(FormatName.DEBEZIUM_JSON),
        schemas=st.booleans(),
        transaction_topic=st.sampled_from(["", "shop.transaction"]),
        types=st.sampled_from([Types.DEBEZIUM, Types.EXACT]),
        decimal=st.sampled_from(DecimalMode),
        time=st.sampled_from(TimeMode),
        zero_dates=st.sampled_from(ZeroDates),
    ).filter(lambda options: options.fits_schemas),
    st.builds(
        FormatOptions,
        st.just(FormatName.JSON),
        tombstones=st.booleans(),
        cloudevents=st.booleans(),
    ),
    st.builds(
        FormatOptions,
        st.just(FormatName.AVRO),
        types=st.sampled_from([Types.EXACT, Types.LOGICAL]),
        zero_dates=st.sampled_from(ZeroDates),
    ).filter(lambda options: options.fits_schemas),
)
TASKS: st.SearchStrategy[TaskDocument] = st.one_of(
    st.builds(
        CaptureTask,
        name=NAMES,
        set_name=NAMES,
        output=ADDRESSES,
        start=STARTS,
        tables=st.builds(TableFilter, PATTERNS.filter(bool), PATTERNS),
        snapshot_limits=st.builds(SnapshotLimits, max_threads_running=st.integers(1, 99)),
        rules=st.builds(
            CaptureRules,
            compression=st.sampled_from(TopicCompression),
            resolved_idle_s=st.integers(5, 600).map(float),
        ),
    ),
    st.builds(
        ApplyTask,
        name=NAMES,
        source=ADDRESSES,
        target=NAMES,
        start=APPLY_STARTS,
        rules=st.builds(
            ApplyRules,
            lanes=st.integers(1, 64),
            consistency=st.sampled_from(Consistency),
            conflict=st.sampled_from(ConflictPolicy),
            safe_mode=st.builds(SafeMode, STARTS.map(lambda start: start.gtid_set)),
            load=st.builds(
                LoadRules,
                parallel=st.integers(1, 64),
                from_primary=st.booleans(),
                new_tables=st.booleans(),
            ),
            compare=st.just(CompareRules())
            | st.builds(CompareRules, every_h=st.integers(1, 48), repair=st.booleans()),
        ),
        placement=PLACEMENTS,
    ),
    st.builds(
        PublishTask,
        name=NAMES,
        source=ADDRESSES,
        start=st.one_of(STARTS, st.just(Start(is_snapshot=True))),
        view=VIEWS,
        topics=TOPICS,
        format=FORMATS,
        on_change=st.sampled_from(OnChange),
        accept_ddl=st.lists(st.integers(1, 2**63 - 1), max_size=3).map(tuple),
        placement=PLACEMENTS,
    ).filter(lambda task: bool(task.source.registry.url) or not task.format.name.is_avro),
)
PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=10), inner, max_size=4)
    ),
    max_leaves=20,
)


@given(SETS)
def test_set_document_round_trips(document: SetDocument) -> None:
    """Canonical JSON gives the same document again, and JSON is YAML."""
    text = canonical_json(plain_set(document))
    assert parse_set(json.loads(text)) == document
    assert parse_set(plain_from_yaml(text)) == document


@given(TASKS)
def test_task_document_round_trips(document: TaskDocument) -> None:
    """Canonical JSON gives the same document again, byte for byte the second time."""
    text = canonical_json(plain_task(document))
    again = parse_task(json.loads(text))
    assert again == document
    assert canonical_json(plain_task(again)) == text


@given(SETS, TASKS)
def test_json_schema_accepts_every_document(set_document: SetDocument, task: TaskDocument) -> None:
    """The schema accepts the form that ZooKeeper keeps, with all defaults written."""
    assert accepts(set_schema(), plain_set(set_document))
    assert accepts(task_schema(), plain_task(task))


@given(st.tuples(SETS, SETS) | st.tuples(TASKS, TASKS))
def test_documents_differ_in_a_field_if_they_are_not_equal(pair: tuple[Document, Document]) -> None:
    """No difference is missed, and a field that one of them leaves out is compared with its default."""
    before, after = (plain_document(document) for document in pair)
    assert (field_changes(before, after) == ()) is (pair[0] == pair[1])
    assert {each.path for each in field_changes(before, after)} == {
        each.path for each in field_changes(after, before)
    }


@given(PLAIN)
def test_any_value_is_accepted_or_refused_with_a_code(plain: object) -> None:
    """No input crashes the parser."""
    for parse in (parse_set, parse_task):
        refusal = _refusal(parse, plain)
        assert refusal is None or refusal.code in ("MR-4101", "MR-4107")


@given(
    TASKS,
    st.sampled_from(["task", "kind", "set", "topic", "kafka", "registry", "start", "lanes"]),
    PLAIN,
)
def test_task_with_a_replaced_field_is_accepted_or_names_it(
    document: TaskDocument, name: str, value: object
) -> None:
    """The path in a refusal names the broken field."""
    plain = {**plain_task(document), name: value}
    refusal = _refusal(parse_task, plain)
    assert refusal is None or (refusal.code == "MR-4101" and f"  {name}" in refusal.message)


@given(st.text(max_size=200))
def test_any_text_is_plain_yaml_or_refused(text: str) -> None:
    """The YAML parser raises only its one code."""
    refusal = _refusal(plain_from_yaml, text)
    assert refusal is None or refusal.code == "MR-4102"


def _refusal(parse: Callable[[T], object], given_value: T) -> Fatal | None:
    try:
        parse(given_value)
    except Fatal as refusal:
        return refusal
    return None
