"""Files that a task needs are deleted only if an operator evicts it by name; the task reports that as its reason."""

from pathlib import Path

import pytest

from millrace.errors import Fatal
from millrace.producer.relay.evictions import (
    RECORD_NAME,
    mark_reported,
    read_evictions,
    record_evictions,
    report_eviction,
)
from millrace.producer.relay.reader import RelayReader
from tests.kit.binlog.plain_files import SERVER
from tests.kit.relay.evict import at, four_files, purge


def test_evicted_paused_task_keeps_no_file(tmp_path: Path) -> None:
    """The other tasks keep theirs; the start of the evicted task reports it once, the next one starts."""
    relay = four_files(tmp_path)
    needed = {"ahead": at(2), "paused": at(1)}
    assert purge(relay, needed) == ["mysql-bin.000001"]
    assert purge(relay, needed, "paused") == ["mysql-bin.000002"]
    assert read_evictions(tmp_path)["paused"].gtid_set == f"{SERVER}:1"
    report_eviction(tmp_path, "ahead")
    with pytest.raises(Fatal, match=f"paused was evicted .* published {SERVER}:1") as caught:
        report_eviction(tmp_path, "paused")
    assert caught.value.code == "MR-2014"
    report_eviction(tmp_path, "paused")
    assert read_evictions(tmp_path) == {}
    assert not (tmp_path / RECORD_NAME).exists()
    relay.close()


def test_evicted_running_task_reads_no_further(tmp_path: Path) -> None:
    """Its reader raises instead of meeting a gap that would make every task reopen the log; a new reader may start."""
    relay = four_files(tmp_path)
    with RelayReader(relay, owner="slow") as slow, RelayReader(relay, owner="fast") as fast:
        start = slow.first()
        assert start is not None
        release = slow.hold(start)
        fast.release(start.at(5))
        assert purge(relay, {}, "slow") == [], "another task holds the files"
        with pytest.raises(Fatal) as caught:
            slow.read(start, bytes_max=100)
        assert caught.value.code == "MR-2014"
        slow.release(start)
        release()
        end = relay.end()
        assert end is not None
        fast.release(end)
        assert len(purge(relay, {})) == 3, "an evicted reader holds nothing"
        with pytest.raises(Fatal):
            slow.wait(start, 0)
    with RelayReader(relay, owner="slow") as again:
        assert again.first() is not None
        again.read(end, bytes_max=100)
    relay.close()


def test_eviction_of_an_unknown_task_deletes_nothing(tmp_path: Path) -> None:
    """A misspelled name must not make the command look successful."""
    relay = four_files(tmp_path)
    assert purge(relay, {"paused": at(1)}, "pausd") == []
    answer = (tmp_path / "purge.answer").read_text()
    assert "MR-2015" in answer
    assert "pausd" in answer
    assert read_evictions(tmp_path) == {}
    relay.close()


@pytest.mark.parametrize("content", ["", "[]", '{"a": 1}', '{"a": {"at": 1}}', "\udcff"])
def test_unreadable_record_stops_no_task(tmp_path: Path, content: str) -> None:
    """The record is a report, not a guard."""
    (tmp_path / RECORD_NAME).write_bytes(content.encode(errors="surrogateescape"))
    report_eviction(tmp_path, "a")
    mark_reported(tmp_path, "a")
    record_evictions(tmp_path, {"a": ""})
    with pytest.raises(Fatal):
        report_eviction(tmp_path, "a")
