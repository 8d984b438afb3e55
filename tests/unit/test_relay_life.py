"""The relay of a set as separate work: when it runs, where it runs, what its status shows."""

import json
import time
from dataclasses import replace

import pytest

from millrace.drivers.mysql.members import MemberFacts
from millrace.errors import Fatal
from millrace.producer.source.relay_status import describe_loss, time_to_loss_s
from millrace.schemas.documents import (
    Directives,
    Member,
    Placement,
    RelayMode,
    RelayRules,
    RelayTask,
    SetDocument,
    TaskKind,
    parse_set,
    plain_set,
)
from millrace.schemas.plain import to_plain
from millrace.schemas.stages import BinlogEnd, PurgeAnswer, Relayed
from millrace.schemas.status import TaskReport, TaskState, report_from_json, report_to_plain
from millrace.zk.client.session import Node
from millrace.zk.placement.assignment import Candidate, assign, placeable
from millrace.zk.run.slot import AssignedTask
from millrace.zk.tree.entries import (
    Desired,
    SetEntry,
    TaskEntry,
    UnreadableEntry,
    directives_content,
    directives_of,
    relay_entries,
    set_content,
    work_entries,
)
from millrace.zk.view import Cluster, status_of, views
from tests.kit.control.control import a_capture, a_set

STAGE = Relayed(
    stage="receives",
    why="from db1:3306",
    source=BinlogEnd(file="mysql-bin.000002", pos=4, gtid_set="0-1-9"),
    subdir="1.000001",
    relay=BinlogEnd(file="mysql-bin.000002", pos=400, gtid_set="0-1-9"),
    behind_bytes=0,
    received_bytes=0,
    connects=1,
    caught_up=True,
    stored_bytes=400,
    disk_left_bytes=1 << 40,
    oldest_file="1.000001/mysql-bin.000001",
    needed={"shop": "1.000001/mysql-bin.000001", "late": ""},
    end_at_s=1_700_000_000.0,
    kept_s=86_400.0,
    time_to_loss_s=86_400.0,
    loss="what the relay has not received when the source purges it",
)


def a_set_with(**relay: object) -> SetDocument:
    """The set ``shop`` with these rules."""
    return parse_set(plain_set(a_set()) | {"relay": relay})


def a_node(content: bytes, *, mzxid: int) -> Node:
    """A node with this content."""
    return Node(content, 0, czxid=2, mzxid=mzxid, modified_ms=0, ephemeral_owner=0)


def entries(document: SetDocument, directives: Directives | None = None) -> object:
    """The work that follows from a set without tasks."""
    wishes = {} if directives is None else {"shop": a_node(directives_content(directives), mzxid=9)}
    sets = {"shop": a_node(set_content(document), mzxid=7)}
    return dict(work_entries({"tasks": {}, "sets": sets, "directives": wishes}))


@pytest.mark.parametrize("mode", RelayMode)
def test_only_a_relay_that_runs_always_is_separate_work(mode: RelayMode) -> None:
    """Under its set's name with a colon, which no document can have."""
    found = entries(a_set_with(mode=mode.value))
    assert isinstance(found, dict)
    assert list(found) == (["relay:shop"] if mode is RelayMode.ALWAYS else [])


def test_relay_is_paused_by_directives_and_follows_their_revision() -> None:
    """An unreadable set has no relay; unreadable directives do not end it."""
    document = a_set_with(mode="always")
    found = entries(document, Directives(relay_paused_by="ann"))
    assert isinstance(found, dict)
    relay = found["relay:shop"]
    assert (relay.paused_by, relay.revision, relay.created) == ("ann", 9, 2)
    known = {"shop": SetEntry(document, 0, 7, 2)}
    garbage = {"shop": a_node(b"no JSON", mzxid=8)}
    assert relay_entries(known, garbage)["relay:shop"].paused_by == ""
    assert relay_entries({"shop": UnreadableEntry(_refusal(), 0, 1)}, {}) == {}


def _refusal() -> Fatal:

    return Fatal("MR-4101", "no set")


def test_directives_come_back_as_they_were_written() -> None:
    """Those of an earlier version have no fields of the relay."""
    wishes = Directives(Member("db1", 3306), frozenset({Member("db2", 3306)}), "ann", "", 3)
    assert directives_of(directives_content(wishes), "directives/shop") == wishes
    plain = json.loads(directives_content(wishes))
    del plain["relay_paused_by"], plain["relay_resumed"]
    assert directives_of(json.dumps(plain).encode(), "d") == replace(
        wishes, relay_paused_by="", relay_resumed=0
    )


def test_relay_is_where_the_tasks_of_its_set_are() -> None:
    """Relay and tasks share one stream, so they move together."""
    works = (RelayTask("shop"), a_capture(), RelayTask("crm"))
    tasks = [placeable(work, Placement()) for work in works]
    workers = {name: Candidate(kind=TaskKind.CAPTURE) for name in ("w1", "w2")}
    found = assign(tasks, workers, {}, moves_max=0).assigned
    assert found["relay:shop"] == found["shop-capture"] != found["relay:crm"]


@pytest.mark.parametrize(
    ("relay", "is_same"),
    [
        ({"mode": "always"}, True),
        ({"mode": "always", "start": "mysql-bin.000007"}, True),
        ({"mode": "off"}, False),
        ({"mode": "with_tasks", "compress": "zstd"}, False),
    ],
)
def test_task_runs_on_when_only_the_relays_life_changes(
    relay: dict[str, object], is_same: bool
) -> None:
    """Other changes of the set need a new stream."""
    entry = TaskEntry(Desired(a_capture()), 0, 5, 1)
    changed = AssignedTask(entry, a_set_with(**relay))
    assert changed.is_same_work(AssignedTask(entry, a_set())) is is_same
    assert AssignedTask(entry, a_set()).is_same_work(changed) is is_same


def test_start_of_a_relay_is_read_and_written() -> None:
    """A binlog file, a GTID set, first."""
    assert a_set_with(mode="always").relay == RelayRules(mode=RelayMode.ALWAYS)
    for start in ("first", "mysql-bin.000017", "0-1-7"):
        document = a_set_with(mode="always", start=start)
        assert document.relay.start == start
        assert parse_set(plain_set(document)) == document


def test_paused_relay_is_shown_as_a_paused_task() -> None:
    """Its last report stays."""
    found = entries(a_set_with(mode="always"), Directives(relay_paused_by="ann"))
    assert isinstance(found, dict)
    cluster = Cluster(
        tasks=found, workers={}, assigned={}, owners={}, saved_reports={}, leader="s1"
    )
    report = status_of("relay:shop", found["relay:shop"], cluster)
    assert (report.state, report.why) == (TaskState.PAUSED, "paused by ann")
    (view,) = views(cluster)
    assert (view.kind, view.route) == ("relay", "set shop → relay log")


@pytest.mark.parametrize(
    "stage",
    [
        None,
        STAGE,
        replace(STAGE, source=None, caught_up=None),
        replace(STAGE, purge=PurgeAnswer(id="1f", deleted=("1.000001/b.000001",))),
    ],
)
def test_stage_in_a_report_comes_back(stage: Relayed | None) -> None:
    """As the worker wrote it to ZooKeeper."""
    content = json.dumps(report_to_plain(TaskReport(TaskState.RUNNING, relayed=stage))).encode()
    assert report_from_json(content, origin="status/t").relayed == stage


def test_stage_has_these_keys() -> None:
    """Operators' scripts read them. New keys may be added; none is renamed."""
    plain = to_plain(STAGE)
    keys = "stage why source subdir relay caught_up behind_bytes received_bytes connects"
    more = (
        "stored_bytes disk_left_bytes oldest_file needed end_at_s kept_s time_to_loss_s loss purge"
    )
    assert list(plain) == [*keys.split(), *more.split()]
    assert plain["relay"] == {"file": "mysql-bin.000002", "pos": 400, "gtid_set": "0-1-9"}


def test_time_to_loss_counts_from_the_last_received_transaction() -> None:
    """As long as the relay is caught up, nothing older than now is missing."""
    hour_ago_s = time.time() - 3600
    assert time_to_loss_s(86_400.0, hour_ago_s, is_caught_up=True) == 86_400.0
    behind_s = time_to_loss_s(86_400.0, hour_ago_s, is_caught_up=False)
    assert behind_s == pytest.approx(82_800, abs=5)
    assert time_to_loss_s(60.0, hour_ago_s, is_caught_up=False) == 0.0
    assert time_to_loss_s(None, hour_ago_s, is_caught_up=False) is None
    assert time_to_loss_s(60.0, None, is_caught_up=False) is None


def test_loss_names_the_tasks_that_the_relay_can_not_serve() -> None:
    """Only the source has what they need."""
    assert describe_loss(STAGE.needed, RelayMode.ALWAYS).endswith("only the source has for late")
    assert "late" not in describe_loss({"shop": "1.000001/b.000001"}, RelayMode.ALWAYS)
    assert "relay is off" in describe_loss({}, RelayMode.OFF)


@pytest.mark.parametrize(
    ("variables", "kept_s"),
    [
        ({"binlog_expire_logs_seconds": "2592000"}, 2_592_000.0),
        ({"binlog_expire_logs_seconds": "0", "expire_logs_days": "7"}, 604_800.0),
        ({"expire_logs_days": "0.500000"}, 43_200.0),
        ({"binlog_expire_logs_seconds": "0"}, None),
        ({"binlog_expire_logs_seconds": "60", "binlog_expire_logs_auto_purge": "OFF"}, None),
        ({}, None),
    ],
)
def test_time_that_a_server_keeps_its_binlogs(
    variables: dict[str, str], kept_s: float | None
) -> None:
    """MySQL 8.0.29 and later can switch the purge off; MariaDB before 10.6.1 counts in days."""
    assert MemberFacts(Member("db1", 3306), variables=variables).kept_s == kept_s
