"""Purging relay files, which a reader or a task may still need."""

import os
from pathlib import Path
from typing import cast
from unittest import mock

import pytest

from millrace.errors import Fatal
from millrace.producer.relay.evictions import record_evictions
from millrace.producer.relay.layout import Subdir
from millrace.producer.relay.purge import PurgePolicy, PurgeSchedule, purge_before, purge_due
from millrace.producer.relay.reader import RelayReader
from millrace.producer.relay.summary import summarize
from millrace.producer.relay.survey import Survey
from millrace.producer.relay.writer import RelayLog
from millrace.producer.task.relay_task import needed_positions
from millrace.schemas.documents import PurgeRules
from millrace.schemas.gtid import Flavour, parse_gtid_set
from millrace.schemas.place import Coordinates
from millrace.zk.run.runner import SetSource
from millrace.zk.tree.entries import UnreadableEntry
from millrace.zk.tree.paths import Tree
from millrace.zk.tree.store import Store
from tests.kit.binlog.plain_files import SERVER, BinlogFile
from tests.kit.relay.lay import write_file

NAME = "mysql-bin.000001"


def make_three_files(root: Path) -> RelayLog:
    """Make three files in two sub-directories."""
    relay = RelayLog.open(root, flavour=Flavour.MYSQL)
    relay.begin_subdir("server-a")
    write_file(relay, NAME, BinlogFile().transaction())
    write_file(relay, "mysql-bin.000002", BinlogFile(first_number=2).transaction())
    relay.begin_subdir("server-b")
    write_file(relay, NAME, BinlogFile(first_number=3).transaction())
    return relay


def test_purge_deletes_a_prefix_and_no_held_file(tmp_path: Path) -> None:
    """A reader's hold and the active file bound every purge."""
    relay = make_three_files(tmp_path)
    everything = Coordinates("server-z.000099", "mysql-bin.000099", 4)
    with RelayReader(relay) as reader:
        assert reader.first() is not None
        assert purge_before(relay, everything, needed={}) == [], "held files were deleted"
        reader.release(Coordinates("server-a.000001", "mysql-bin.000002", 10))
        assert [at.file for at in purge_before(relay, everything, needed={})] == [NAME]
    assert [at.file for at in purge_before(relay, everything, needed={})] == ["mysql-bin.000002"]
    assert relay.list_files() == [(Subdir("server-b", 2), NAME)]
    assert (tmp_path / "server-uuid.index").read_text() == "server-b.000002\n"
    assert not (tmp_path / "server-a.000001").exists()
    relay.close()


def test_purge_keeps_files_that_a_stopped_task_needs(tmp_path: Path) -> None:
    """A paused or blocked task holds nothing: its position gives the file it resumes with."""
    relay = RelayLog.open(tmp_path, flavour=Flavour.MYSQL)
    relay.begin_subdir("server-a")
    for number in (1, 2, 3):
        file = BinlogFile(first_number=number).transaction()
        write_file(relay, f"mysql-bin.00000{number}", file)
    everything = Coordinates("server-z.000099", "mysql-bin.000099", 4)
    ahead, paused = (parse_gtid_set(Flavour.MYSQL, f"{SERVER}:1-{last}") for last in (3, 1))
    purged = purge_before(relay, everything, needed={"a": ahead, "p": paused})
    assert [at.file for at in purged] == [NAME]
    os.utime(tmp_path / "server-a.000001" / "mysql-bin.000002", (0, 0))
    old = PurgePolicy.of(PurgeRules(remain_gb=0))
    assert purge_due(relay, old, needed={"a": ahead, "p": paused}) == []
    assert [at.file for at in purge_due(relay, old, needed={"a": ahead})] == ["mysql-bin.000002"]
    relay.close()


def test_purge_keeps_all_for_a_task_without_progress(tmp_path: Path) -> None:
    """A task with ``start: first`` that has published nothing begins at the first binlog: it needs every file.

    Its position in ZooKeeper is empty. The purge on request, by age and by space keep the files, and the status and
    ``relay list`` name the oldest one.
    """
    relay = make_three_files(tmp_path)
    ahead = f"{SERVER}:1-3"
    texts = {"ahead": ahead, "new": ""}
    sets = mock.create_autospec(SetSource, instance=True)
    sets.positions_of.return_value = texts
    needed = needed_positions(sets, "shop", Flavour.MYSQL)()
    assert needed is not None
    assert needed["new"] is None
    assert purge_before(relay, Coordinates("server-z.000099", NAME, 4), needed=needed) == []
    for path in tmp_path.glob("*/mysql-bin.*"):
        os.utime(path, (0, 0))
    for policy in (PurgePolicy(age_s_max=1), PurgePolicy(free_bytes_min=1 << 60)):
        assert purge_due(relay, policy, needed=needed) == []
    oldest = f"server-a.000001/{NAME}"
    assert summarize(relay, needed).needed["new"] == oldest
    survey = Survey(tmp_path)
    assert survey.needed_by(survey.list_files(), texts)["new"] == oldest
    record_evictions(tmp_path, {"new": ""})
    assert len(purge_due(relay, PurgePolicy(age_s_max=1), needed=needed)) == 2, "it is evicted"
    relay.close()


def test_purge_waits_for_a_task_that_is_unreadable(tmp_path: Path) -> None:
    """A document of a newer version may be a task of the set: nothing is deleted until it can be read.

    Other questions about the set's tasks are answered without it.
    """
    error = Fatal("MR-4011", "task late can't be read")
    store = Store(mock.Mock(), Tree())
    with mock.patch.object(Store, "tasks", return_value={"late": UnreadableEntry(error, 0, 0)}):
        assert store.positions_of("shop") == {}
        needed = needed_positions(cast(SetSource, store), "shop", Flavour.MYSQL)
        assert needed() is None
        relay = make_three_files(tmp_path)
        assert PurgeSchedule(PurgeRules(remain_gb=1 << 20)).run(relay, needed) == []
    relay.close()


def test_purge_follows_age_and_space(tmp_path: Path) -> None:
    """New files stay while there is space; old files are deleted; without space, all unneeded files are deleted."""
    relay = make_three_files(tmp_path)
    old = PurgePolicy.of(PurgeRules(remain_gb=0))
    assert purge_due(relay, old, needed={}) == []
    os.utime(tmp_path / "server-a.000001" / NAME, (0, 0))
    assert [at.file for at in purge_due(relay, old, needed={})] == [NAME]
    assert len(purge_due(relay, PurgePolicy(free_bytes_min=1 << 60), needed={})) == 1
    assert len(relay.list_files()) == 1
    relay.close()


def test_zero_switches_a_purge_rule_off(tmp_path: Path) -> None:
    """Neither age nor a full disk deletes a file when its rule is 0; without an interval nothing is checked."""
    relay = make_three_files(tmp_path)
    os.utime(tmp_path / "server-a.000001" / NAME, (0, 0))
    assert purge_due(relay, PurgePolicy.of(PurgeRules(expires_h=0, remain_gb=0)), needed={}) == []
    assert PurgeSchedule(PurgeRules(interval_s=0)).run(relay, dict) == []
    assert len(PurgeSchedule(PurgeRules(expires_h=0, remain_gb=1 << 20)).run(relay, dict)) == 2
    relay.close()


def test_schedule_checks_age_by_interval_and_space_every_minute(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file that expires between two checks stays; low space is noticed a minute later; unknown needs are retried."""
    now_s = 1000.0
    monkeypatch.setattr("millrace.producer.relay.purge.time.monotonic", lambda: now_s)
    relay = make_three_files(tmp_path)
    free_bytes = 1 << 60
    monkeypatch.setattr(type(relay.disk), "free_bytes", lambda *_: free_bytes)
    schedule = PurgeSchedule(PurgeRules(interval_s=3600, expires_h=1, remain_gb=15))
    assert schedule.run(relay, lambda: None) == []
    assert schedule.run(relay, dict) == []
    os.utime(tmp_path / "server-a.000001" / NAME, (0, 0))
    now_s += 61
    assert schedule.run(relay, dict) == [], "age is checked every hour"
    free_bytes = 1 << 30
    assert schedule.run(relay, dict) == [], "space is checked every minute"
    now_s += 61
    assert schedule.run(relay, lambda: None) == []
    assert len(schedule.run(relay, dict)) == 2
    relay.close()


def test_schedule_purges_expired_files_after_its_interval(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second check comes one interval after the first."""
    now_s = 0.0
    monkeypatch.setattr("millrace.producer.relay.purge.time.monotonic", lambda: now_s)
    relay = make_three_files(tmp_path)
    schedule = PurgeSchedule(PurgeRules(interval_s=7200, expires_h=1, remain_gb=0))
    assert schedule.run(relay, dict) == []
    os.utime(tmp_path / "server-a.000001" / NAME, (0, 0))
    now_s = 7199.0
    assert schedule.run(relay, dict) == []
    now_s = 7200.0
    assert [at.file for at in schedule.run(relay, dict)] == [NAME]
    relay.close()
