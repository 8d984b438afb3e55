"""Each condition of `millrace check` has its code, on recorded answers. The judgements are pure."""

import re
import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from millrace import __version__
from millrace.checks.areas import Check, run_checks
from millrace.checks.clock import Clock, judge_clock
from millrace.checks.host import (
    GIB,
    OPEN_FILES_MIN,
    HostUse,
    free_memory_bytes,
    judge_disk,
    judge_kernels,
    judge_memory,
    judge_open_files,
)
from millrace.checks.requirement import Area, Level, Requirement, Subject
from millrace.checks.retention import judge_loss
from millrace.cli.check.subscribers import judge_subscriber
from millrace.codes import PAGE
from millrace.consumer.checks.cascades import judge_cascades
from millrace.consumer.checks.publish import judge_output_settings
from millrace.consumer.checks.target import (
    Settings,
    TargetUse,
    judge_grants,
    judge_safe_mode,
    judge_schemas,
    judge_settings,
    judge_tables,
    written_databases,
)
from millrace.consumer.load.tables import Admission
from millrace.drivers.kafka.reader import Ends
from millrace.drivers.kafka.topic import TopicSettings
from millrace.drivers.mysql.actions import Action, Actions
from millrace.drivers.mysql.catalog import (
    CatalogColumn,
    CatalogTable,
    ForeignKey,
    Inventory,
    UniqueKey,
)
from millrace.drivers.mysql.grants import Role, needed_grants, parse_grants
from millrace.drivers.mysql.members import Identity, MemberBinlog, MemberFacts, Replication
from millrace.errors import Fatal, Retryable
from millrace.pages import page_tables
from millrace.producer.checks import topic
from millrace.producer.checks.answers import Answers, Tables
from millrace.producer.checks.source import (
    SourceUse,
    judge_answers,
    judge_logged,
    judge_server_ids,
    judge_set,
)
from millrace.producer.checks.source import (
    judge_tables as judge_source_tables,
)
from millrace.producer.checks.topic import (
    judge_open,
    judge_operations,
    judge_planned,
    judge_row_size,
    judge_topic,
    trial_config,
    trial_creation,
    watch_ends,
)
from millrace.producer.source.choose.choice import verdicts_of
from millrace.registry.checks import judge_compatibility, judge_mode
from millrace.schemas.documents import (
    Account,
    ApplyTask,
    Brokers,
    CaptureTask,
    CleanupPolicy,
    Directives,
    HeartbeatRules,
    Member,
    OutputSettings,
    SecretReference,
    SetDocument,
    TableFilter,
    TlsMode,
    TopicAddress,
    TopicOptions,
)
from millrace.schemas.gtid import Flavour, GtidSet
from millrace.schemas.record.avro_schema import envelope_schema
from millrace.schemas.stages import GroupState, SubscriberStage
from millrace.schemas.view.view import ALL_TABLES, TableRule, View, view_of_filter
from millrace.zk.checks import (
    judge_acls,
    judge_documents,
    judge_servers,
    judge_timeout,
    judge_versions,
)
from millrace.zk.client.access import OPEN, WORLD, Policy
from millrace.zk.tree.acls import NodeAcl
from millrace.zk.tree.entries import UnreadableEntry
from tests.kit.apply.local import apply_task
from tests.kit.capture.recorded import SETTINGS
from tests.kit.capture.topic_rows import TABLE
from tests.kit.control.control import a_publish
from tests.kit.paths import ROOT

SUBJECT = Subject(Area.SOURCE, "db1:3306")
POLICY = Policy((replace(WORLD, scheme="sasl", id="millrace"),))
UUID = "3e11fa47-71ca-11e1-9e33-c80aa9429562"
PAUSE_S = 72 * 3600.0
PAUSE_MS, NOW_MS = round(PAUSE_S * 1000), 1_764_000_000_000
GOOD = {**SETTINGS, "log_replica_updates": "ON", "binlog_expire_logs_seconds": "2592000"}
EXACT = ("GRANT REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO `m`@`%`",)
ADDRESS = TopicAddress(topic="shop", brokers=Brokers("127.0.0.1:1"))
TASK = CaptureTask(name="shop-capture", set_name="shop", output=ADDRESS)
TOPIC = TopicSettings(1, "delete", 64 * 2**20, 3, 2, -1)


def document(*, heartbeat: str = "") -> SetDocument:
    """A set."""
    reference = SecretReference.parse("env:MILLRACE_TEST_PASSWORD")
    assert reference is not None
    return SetDocument(
        name="shop",
        members=(Member("db1", 3306),),
        account=Account("m", reference),
        heartbeat=HeartbeatRules(database=heartbeat),
    )


def member(number: int = 1, *, replica: bool = False, **variables: str) -> MemberFacts:
    """A MySQL member with all that capture needs, except ``variables``."""
    return MemberFacts(
        Member(f"db{number}", 3306),
        identity=Identity(Flavour.MYSQL, f"server-{number}", "9.7.0"),
        variables={**GOOD, **variables},
        replications=(Replication(0.0),) if replica else (),
        binlog=MemberBinlog(GtidSet.parse(f"{UUID}:1-9"), GtidSet.parse("")),
    )


def of_set(*facts: MemberFacts) -> Iterator[Requirement]:
    """The requirements of the members of a set."""
    verdicts = verdicts_of(facts, wanted=None, directives=Directives(), is_live=False)
    return judge_set(facts, verdicts, tls=TlsMode.VERIFY_CA, starts_first=True)


def of_member(
    fact: MemberFacts, *lines: str, ahead_s: float = 0.0, heartbeat: str = ""
) -> Iterator[Requirement]:
    """The requirements of a member with these grants."""
    grants = parse_grants(lines or EXACT)
    got = Answers(fact.member, grants, Clock(ahead_s, 0.001), "1", frozenset({"shop"}))
    return judge_answers(fact, got, document(heartbeat=heartbeat), SourceUse(pause_s=PAUSE_S))


def of_topic(**settings: object) -> Iterator[Requirement]:
    """The requirements of a topic."""
    found = replace(TOPIC, **settings)  # type: ignore[arg-type]
    return judge_topic(SUBJECT, found, trial_config(TASK), pause_s=PAUSE_S)


class Refusing:
    """A broker that would not create the topic."""

    def create(self, record_bytes_max: int, *, is_trial: bool) -> None:
        """Refuse."""
        assert record_bytes_max
        assert is_trial
        raise Fatal("MR-3005", "no right to create")

    def planned(self, record_bytes_max: int) -> TopicSettings:
        """Refuse."""
        assert record_bytes_max
        raise Fatal("MR-3005", "no right to see the broker's settings")


class Growing:
    """A partition whose ends are asked for; the last answer repeats."""

    def __init__(self, *ends: Ends) -> None:
        self._ends = list(ends)

    def all_ends(self) -> Ends:
        """The next answer."""
        return self._ends.pop(0) if len(self._ends) > 1 else self._ends[0]


def table(*, key: bool = True, engine: str = "InnoDB", nullable: bool = False) -> CatalogTable:
    """A table ``shop.t``."""
    column = CatalogColumn("id", "int", "int", "", "", nullable, False)
    keys = (UniqueKey("PRIMARY", ("id",), True),) if key else ()
    return CatalogTable("shop", "t", {"id": column}, keys, engine, engine == "InnoDB")


def of_tables(found: CatalogTable, **inventory: object) -> Iterator[Requirement]:
    """The requirements of one table of a target."""
    tables = {("shop", "t"): found}
    return judge_tables(SUBJECT, Inventory(tables=tables, **inventory), tables)  # type: ignore[arg-type]


def of_subscriber(**fields: object) -> list[Requirement]:
    """The requirement of a subscriber that is active and has read all."""
    values = {"state": GroupState.ACTIVE, "lag": 0, **fields}
    stage = SubscriberStage(name="reports", group="g", **values)  # type: ignore[arg-type]
    return [judge_subscriber(SUBJECT, stage, now_ms=NOW_MS, pause_s=PAUSE_S)]


def of_tree() -> Iterator[Requirement]:
    """The requirements of safe mode for a table that a foreign key links with itself."""
    key = ("shop", "t")
    foreign = ForeignKey(key, ("up",), key, ("id",), Actions(Action.CASCADE), "up")
    inventory = Inventory(tables={key: table()}, foreign_keys=(foreign,))
    return judge_safe_mode(SUBJECT, SAFE, inventory)


def of_cascade(
    rules: dict[str, str] | None = None,
    *,
    excluded: tuple[str, ...] = (),
    parent: str = "orders",
    action: Action = Action.CASCADE,
) -> Iterator[Requirement]:
    """The requirements of `shop.items`, whose rows follow those of `shop.orders` on the source.

    ``rules``: by table, its `where`; both tables get the names of `{table}_copy`. ``parent``, ``action``: of the
    foreign key of the target.
    """
    child = ("shop", "items")
    link = ForeignKey(child, ("at",), ("shop", "orders"), ("id",), Actions(Action.CASCADE), "fk")
    if rules is not None:
        view = View(
            tuple(
                TableRule(f"shop.{name}", "shop.{table}_copy", where, rename=(("at", "order_id"),))
                for name, where in rules.items()
            )
        )
        there = replace(
            link,
            child=("shop", "items_copy"),
            columns=("Order_ID",),
            parent=("shop", "orders_copy"),
        )
    else:
        view = ALL_TABLES
        there = replace(link, parent=("shop", parent), actions=Actions(action))
    tables = {key: table() for key in (child, ("shop", "orders"), there.child, there.parent)}
    source = Inventory(tables=tables, foreign_keys=(link,))
    target = Inventory(tables=tables, foreign_keys=(there,))
    admission = Admission(TableFilter(exclude=excluded), view)
    return judge_cascades(SUBJECT, admission, source, target)


def of_grants(*lines: str) -> Iterator[Requirement]:
    """The requirements of a target's account."""
    needed = needed_grants(Role.TARGET, Flavour.MYSQL, ("shop",))
    return judge_grants(SUBJECT, parse_grants(lines), needed, ())


def hanging() -> list[Requirement]:
    """A check that is late."""
    is_over = threading.Event()

    def late() -> Iterator[Requirement]:
        is_over.wait()
        yield from ()

    try:
        return run_checks([Check(SUBJECT, late)], limit_s=0.0)
    finally:
        is_over.set()


ALL_TARGET = tuple(
    grant.sql("`m`@`%`").replace(";", " ")
    for grant in needed_grants(Role.TARGET, Flavour.MYSQL, ("shop",))
)
SAFE = apply_task("copy", safe_until="0-1-9")
UNREADABLE = UnreadableEntry(Fatal("MR-4011", "no JSON"), 0, 0)
GONE = MemberFacts(Member("db9", 3306), error=Retryable("MR-1001", "db9:3306: refused"))

# code, level, the requirements
CASES: tuple[tuple[str, Level, Callable[[], Iterable[Requirement]]], ...] = (
    ("MR-1001", Level.WARN, lambda: of_set(member(), GONE)),
    ("MR-1001", Level.FAIL, lambda: of_set(GONE)),
    ("MR-1010", Level.FAIL, lambda: of_set(member(log_bin="OFF"))),
    ("MR-1012", Level.FAIL, lambda: of_set(member(binlog_format="MIXED"))),
    ("MR-1012", Level.WARN, lambda: of_set(member(), member(2, replica=True, binlog_format="MIXED"))),
    ("MR-1013", Level.FAIL, lambda: of_set(member(binlog_row_image="MINIMAL"))),
    ("MR-1014", Level.FAIL, lambda: of_set(member(binlog_row_metadata="MINIMAL"))),
    ("MR-1016", Level.FAIL, lambda: of_set(member(gtid_mode="OFF"))),
    ("MR-1005", Level.FAIL, lambda: of_member(member(), "GRANT REPLICATION CLIENT ON *.* TO `m`@`%`")),
    ("MR-1047", Level.WARN, lambda: of_member(member(), heartbeat="ops")),
    ("MR-4160", Level.FAIL, lambda: judge_server_ids(SUBJECT, {"db1:1": "7", "db2:1": "7", "db3:1": "8"})),
    ("MR-4161", Level.WARN, lambda: of_member(member(), *EXACT, "GRANT FILE, SUPER ON *.* TO `m`@`%`")),
    ("MR-4161", Level.WARN, lambda: of_grants(*ALL_TARGET, "GRANT FILE ON *.* TO `m`@`%`")),
    ("MR-4162", Level.WARN, lambda: of_member(member(binlog_expire_logs_seconds="3600"))),
    ("MR-4163", Level.WARN, lambda: of_member(member(), ahead_s=-3.0)),
    ("MR-4164", Level.WARN, lambda: [judge_source_tables(SUBJECT, Tables(2, ("shop.t",)))]),
    ("MR-4164", Level.WARN, lambda: of_tables(table(key=False))),
    ("MR-4164", Level.WARN, lambda: of_tables(table(nullable=True))),
    ("MR-4165", Level.WARN, lambda: of_topic(retention_ms=3_600_000)),
    ("MR-4165", Level.WARN, lambda: [judge_loss(SUBJECT, "t", PAUSE_S - 1, PAUSE_S)]),
    ("MR-4190", Level.WARN, lambda: of_subscriber(lag=1, loss_at_ms=NOW_MS + PAUSE_MS - 1)),
    ("MR-4190", Level.WARN, lambda: of_subscriber(state=GroupState.EMPTY, loss_at_ms=NOW_MS + PAUSE_MS - 1)),
    ("MR-4190", Level.WARN, lambda: of_subscriber(lag=0, lost=1, loss_at_ms=NOW_MS)),
    ("MR-4191", Level.WARN, lambda: of_subscriber(state=GroupState.MISSING)),
    ("MR-4191", Level.WARN, lambda: of_subscriber(state=GroupState.NEVER_READ)),
    ("MR-4166", Level.WARN, lambda: [judge_row_size(SUBJECT, Tables(1, (), "shop.t", 2**30), 2**20)]),
    ("MR-4167", Level.FAIL, lambda: [judge_mode(SUBJECT, "READONLY")]),
    ("MR-4168", Level.WARN, lambda: [judge_compatibility(SUBJECT, "BACKWARD")]),
    ("MR-4169", Level.WARN, lambda: [judge_servers(SUBJECT, {"z1": "", "z2": "", "z3": "refused"})]),
    ("MR-4001", Level.FAIL, lambda: [judge_servers(SUBJECT, {"z1": "refused"})]),
    ("MR-4170", Level.WARN, lambda: [judge_timeout(SUBJECT, 600.0, 40.0)]),
    ("MR-4192", Level.WARN, lambda: [judge_versions(SUBJECT, {"w1": ""})]),
    ("MR-4192", Level.WARN, lambda: [judge_versions(SUBJECT, {"w1": "0.0.7", "s1": __version__})]),
    ("MR-7030", Level.WARN, lambda: [judge_acls(SUBJECT, [NodeAcl("/m/c", OPEN, 0)], POLICY)]),
    ("MR-4011", Level.FAIL, lambda: judge_documents(SUBJECT, "sets", {"s": UNREADABLE})),
    ("MR-4171", Level.WARN, lambda: judge_settings(SUBJECT, Settings(0, 20, 0), TargetUse())),
    ("MR-4172", Level.WARN, lambda: judge_settings(SUBJECT, Settings(1, 20, 1), TargetUse(source_folds=False))),
    ("MR-4172", Level.FAIL, lambda: judge_settings(SUBJECT, Settings(1, 20, 0), TargetUse(source_folds=True))),
    ("MR-4173", Level.WARN, lambda: judge_settings(SUBJECT, Settings(1, 5, 0), TargetUse())),
    ("MR-4174", Level.WARN, lambda: [judge_disk(SUBJECT, HostUse(Path("/"), relay_free_gb=10**9))]),
    ("MR-4175", Level.WARN, lambda: [judge_open_files(SUBJECT, 1024)]),
    ("MR-4176", Level.WARN, lambda: [judge_memory(SUBJECT, GIB // 2, GIB)]),
    ("MR-4177", Level.WARN, lambda: [judge_kernels(SUBJECT, {"relay": Path("/nowhere")})]),
    ("MR-4178", Level.FAIL, hanging),
    ("MR-4179", Level.WARN, lambda: [judge_logged(SUBJECT, ["Binlog_Do_DB=shop"])]),
    ("MR-3005", Level.FAIL, lambda: [judge_operations(SUBJECT, frozenset({"READ", "DESCRIBE"}))]),
    ("MR-3005", Level.FAIL, lambda: [trial_creation(SUBJECT, Refusing(), trial_config(TASK))]),
    ("MR-3009", Level.FAIL, lambda: of_topic(partition_count=3)),
    ("MR-3009", Level.FAIL, lambda: of_topic(cleanup_policy="compact")),
    ("MR-3021", Level.WARN, lambda: of_topic(replication_factor=1, min_insync_replicas=1)),
    ("MR-3013", Level.FAIL, lambda: [judge_open(SUBJECT, Ends(0, 5, 9), "other", ours="millrace/shop/0")]),
    ("MR-3013", Level.WARN, lambda: [judge_open(SUBJECT, Ends(0, 5, 9), "me", ours="me")]),
    ("MR-3013", Level.WARN, lambda: [judge_open(SUBJECT, Ends(0, 5, 9), "", ours="me")]),
    ("MR-5007", Level.FAIL, lambda: of_grants(*ALL_TARGET[1:])),
    ("MR-5007", Level.FAIL, lambda: of_grants("GRANT `apply_role`@`%` TO `m`@`%`")),
    ("MR-5015", Level.FAIL, lambda: of_tables(table(engine="MyISAM"))),
    ("MR-5018", Level.WARN, lambda: of_tables(table(), triggers={("shop", "t"): ("audit",)})),
    ("MR-5025", Level.WARN, of_tree),
    ("MR-4193", Level.FAIL, lambda: of_cascade(excluded=("shop.orders",))),
    ("MR-4193", Level.FAIL, lambda: of_cascade({"items": ""})),
    ("MR-4193", Level.WARN, lambda: of_cascade({"items": "", "orders": "id > 0"})),
    ("MR-4193", Level.WARN, lambda: of_cascade({"items": "at IS NULL", "orders": ""})),
    ("MR-4193", Level.WARN, lambda: of_cascade(parent="others")),
    ("MR-4193", Level.WARN, lambda: of_cascade(action=Action.SET_NULL)),
)  # fmt: skip


@pytest.mark.parametrize(
    ("code", "level", "find"), CASES, ids=[f"{code} {level}" for code, level, _ in CASES]
)
def test_every_condition_of_a_check_has_its_code(
    code: str, level: Level, find: Callable[[], Iterable[Requirement]]
) -> None:
    """It is the only finding; it shows what was found, and how to fix it."""
    (finding,) = [found for found in find() if found.level is not Level.OK]
    assert (finding.code, finding.level) == (code, level)
    assert finding.found
    assert finding.fix


@pytest.mark.parametrize(
    "find",
    [
        lambda: of_set(member(), member(2, replica=True)),
        lambda: of_member(member()),
        lambda: of_member(member(), *EXACT, "GRANT SELECT ON *.* TO `m`@`%`"),
        lambda: judge_server_ids(SUBJECT, {"db1:1": "7", "db2:1": "8"}),
        lambda: [judge_source_tables(SUBJECT, Tables(0))],
        of_topic,
        lambda: of_topic(retention_ms=300 * 3_600_000),
        lambda: [judge_loss(SUBJECT, "t", PAUSE_S, PAUSE_S)],
        lambda: of_subscriber(lag=1, loss_at_ms=NOW_MS + PAUSE_MS),
        lambda: of_subscriber(lag=0, loss_at_ms=NOW_MS),
        lambda: of_subscriber(lag=1),
        lambda: of_subscriber(state=GroupState.UNKNOWN, lag=None),
        lambda: [judge_operations(SUBJECT, frozenset({"ALL"}))],
        lambda: judge_planned(SUBJECT, Refusing(), trial_config(TASK), pause_s=PAUSE_S),
        lambda: [judge_row_size(SUBJECT, Tables(0), 1)],
        lambda: [judge_open(SUBJECT, Ends(0, 5, 5), "", ours="")],
        lambda: judge_settings(SUBJECT, Settings(1, 20, 1), TargetUse(source_folds=True)),
        lambda: of_grants(*ALL_TARGET),
        lambda: of_grants(*ALL_TARGET, "GRANT `apply_role`@`%` TO `m`@`%`"),
        lambda: of_tables(table()),
        lambda: judge_safe_mode(SUBJECT, SAFE, Inventory()),
        of_cascade,
        lambda: of_cascade({"items": "id > 0", "orders": ""}),
        lambda: of_cascade(excluded=("shop.orders", "shop.items")),
        lambda: [judge_servers(SUBJECT, {"z1": ""})],
        lambda: [judge_timeout(SUBJECT, 10.0, 10.0)],
        lambda: [judge_versions(SUBJECT, {"w1": __version__})],
        lambda: [judge_open_files(SUBJECT, OPEN_FILES_MIN)],
        lambda: [judge_memory(SUBJECT, -1, GIB)],
        lambda: [judge_clock(SUBJECT, Clock(1.5, 0.6))],
    ],
)
def test_requirement_that_holds_is_no_finding(find: Callable[[], Iterable[Requirement]]) -> None:
    """Exactly at the limit, too."""
    found = list(find())
    assert found
    assert {one.level for one in found} == {Level.OK}
    assert {one.code for one in found} == {""}


def test_page_about_checks_lists_every_code() -> None:
    """docs/check.md names the codes of all findings, alone or as a range."""
    page = (ROOT / "docs/check.md").read_text()
    ranges = re.findall(r"MR-(\d{4}) to MR-(\d{4})", page)
    listed = {f"MR-{code}" for low, high in ranges for code in range(int(low), int(high) + 1)}
    listed |= set(re.findall(r"MR-\d{4}", page))
    assert {code for code, _, _ in CASES} - listed == set()
    (rows,) = (rows for title, rows in page_tables(PAGE).items() if "millrace check" in title)
    assert {row[0] for row in rows} - listed == set()


def test_topic_settings_of_the_document_are_compared() -> None:
    """MR-3020, as at a start; one replica that the document asks for is no warning."""
    options = TopicOptions(replication_factor=1, min_insync_replicas=1)
    asked = trial_config(replace(TASK, topic_options=options))
    single = replace(TOPIC, replication_factor=1, min_insync_replicas=1)
    levels = {one.code: one.level for one in judge_topic(SUBJECT, single, asked, pause_s=0.0)}
    assert levels == {"": Level.OK}
    codes = {one.code for one in judge_topic(SUBJECT, TOPIC, asked, pause_s=0.0)}
    assert codes == {"", "MR-3020"}


def test_settings_of_existing_output_topics_are_compared() -> None:
    """Each differing setting once, as a warning. Missing partitions are added by the task."""
    settings = OutputSettings(retention_ms=-1, cleanup_policy=CleanupPolicy.COMPACT_DELETE)
    task = a_publish()
    task = replace(task, topics=replace(task.topics, partitions=2, settings=settings))
    fitting = replace(TOPIC, cleanup_policy="delete,compact")
    (one,) = judge_output_settings(SUBJECT, task, {"a": fitting})
    assert (one.level, one.found) == (Level.OK, "1 topic as in the document")
    other = replace(fitting, partition_count=3, retention_ms=9)
    found = list(judge_output_settings(SUBJECT, task, {"a": fitting, "b": other, "c": other}))
    assert [(each.code, each.level, each.found, each.wanted) for each in found] == [
        ("MR-3020", Level.WARN, "retention_ms 9: b, c", "retention_ms -1"),
        ("MR-3020", Level.WARN, "partitions 3: b, c", "partitions 2"),
    ]


def test_dry_run_fences_no_task() -> None:
    """Its transactional ID is not the task's."""
    assert trial_config(TASK).transactional_id == "millrace/shop/check"


def test_transaction_that_ends_is_not_reported() -> None:
    """A running task has a transaction open now and then; the next one does not matter."""
    ended = watch_ends(Growing(Ends(0, 5, 9), Ends(0, 10, 12)), open_s=5.0)
    assert ended.stable == ended.high
    slow = watch_ends(Growing(Ends(0, 5, 9), Ends(0, 9, 9)), open_s=0.0)
    assert slow.stable == slow.high  # an answer may take longer than the limit
    stuck = watch_ends(Growing(Ends(0, 5, 9)), open_s=0.0)
    assert stuck == Ends(0, 5, 9)


def test_transaction_that_ends_during_the_check_is_fine(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Then the broker names no writer. It must not look like an unknown one, whose transaction an operator aborts."""
    monkeypatch.setattr(topic, "OPEN_S", 0.0)
    monkeypatch.setattr(topic, "find_open_writer", lambda *_, **__: "")
    partition = Growing(Ends(0, 5, 9), Ends(0, 5, 9), Ends(0, 9, 9))
    ends, writer = topic.watch_open(partition, trial_config(TASK))
    assert judge_open(SUBJECT, ends, writer, ours="me").level is Level.OK


def test_own_transaction_is_never_to_be_aborted() -> None:
    """Nor one of an unknown writer, which may be the running task, before the task was looked at."""
    for writer in ("me", ""):
        found = judge_open(SUBJECT, Ends(0, 5, 9), writer, ours="me")
        assert "abort it" not in found.fix.replace("Don't abort it", "").replace(
            "abort it only if", ""
        )


def test_missing_table_of_a_known_schema_is_named() -> None:
    """Only schemas that the task has stored can be compared."""
    task = ApplyTask(name="shop-apply", source=ADDRESS, target="copy")
    (none,) = judge_schemas(SUBJECT, task, [], Inventory())
    assert none.found == "none known yet"


def test_databases_that_the_account_cannot_see_need_a_grant() -> None:
    """They are known by name, by the topic's capture task, or by a schema that the task has stored."""
    task = ApplyTask(
        name="shop-apply",
        source=ADDRESS,
        target="copy",
        view=view_of_filter(TableFilter(exclude=("hr.*",))),
    )
    captured = {"shop-apply": [TableFilter(("shop.*", "hr.*", "log_*.*"))]}
    use = TargetUse([task], captured=captured)
    known = envelope_schema("shop", replace(TABLE, database="Applied")).text
    assert written_databases(task, use, [known], Inventory()) == {"shop", "Applied"}
    assert written_databases(task, use, [known], Inventory(folds_names=True)) == {"shop", "applied"}
    assert written_databases(task, TargetUse([task]), [], Inventory()) == set()
    named = replace(task, view=view_of_filter(TableFilter(("mine.*",))))
    assert written_databases(named, use, [known], Inventory()) == {"mine"}


def test_right_on_no_database_is_not_called_sufficient() -> None:
    """The fix is the grant; without a known database, the answer says so."""
    needed = needed_grants(Role.TARGET, Flavour.MYSQL, ())
    held = parse_grants([grant.sql("`m`@`%`").replace(";", " ") for grant in needed])
    known, *_ = judge_grants(SUBJECT, held, needed, ())
    assert known.found == "sufficient; which databases are written is not known yet"
    needed = needed_grants(Role.TARGET, Flavour.MYSQL, ("shop",))
    failed, *_ = judge_grants(SUBJECT, held, needed, ())
    assert (failed.code, failed.level) == ("MR-5007", Level.FAIL)
    assert failed.fix.startswith("GRANT SELECT, INSERT")
    assert "ON `shop`.* TO `m`@`%`;" in failed.fix


def test_relay_disk_that_can_not_be_written_fails(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A folder that does not exist yet is judged by the one above it; the check creates none."""
    folder = tmp_path / "relay" / "shop"
    assert judge_disk(SUBJECT, HostUse(folder)).level is Level.OK
    assert not folder.parent.exists()
    monkeypatch.setattr("os.access", lambda *_: False)
    found = judge_disk(SUBJECT, HostUse(folder))
    assert (found.code, found.level) == ("MR-2002", Level.FAIL)
    assert str(tmp_path) in found.found


def test_memory_is_limited_by_the_container(tmp_path: Path) -> None:
    """The smaller of the machine's free memory and the container's limit."""
    meminfo, cgroup = tmp_path / "meminfo", tmp_path / "memory.max"
    meminfo.write_text("MemTotal: 9 kB\nMemAvailable:    2048 kB\n")
    assert free_memory_bytes(meminfo=meminfo, cgroup=cgroup) == 2048 * 1024
    cgroup.write_text("max\n")
    assert free_memory_bytes(meminfo=meminfo, cgroup=cgroup) == 2048 * 1024
    cgroup.write_text("4096\n")
    assert free_memory_bytes(meminfo=meminfo, cgroup=cgroup) == 4096
    assert free_memory_bytes(meminfo=tmp_path / "none", cgroup=cgroup) == -1
