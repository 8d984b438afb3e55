"""The worker is killed between the record of an eviction and the purge: the task reports it, nothing is lost."""

from pathlib import Path

import pytest

from millrace.errors import Fatal
from millrace.producer.relay.evictions import AFTER_RECORD, report_eviction
from millrace.producer.relay.writer import RelayLog
from millrace.schemas.gtid import Flavour
from tests.kit.forked import killed_at
from tests.kit.relay.evict import at, four_files, purge


def test_killed_purge_leaves_a_recorded_eviction(tmp_path: Path) -> None:
    """Every file is still there; the next purge deletes them, because the task is evicted again by name."""
    four_files(tmp_path).close()

    def evict() -> None:
        relay = RelayLog.open(tmp_path, flavour=Flavour.MYSQL)
        purge(relay, {"paused": at(1)}, "paused")

    killed_at(f"{AFTER_RECORD}:kill", evict)
    relay = RelayLog.open(tmp_path, flavour=Flavour.MYSQL)
    assert len(relay.list_files()) == 4
    with pytest.raises(Fatal) as caught:
        report_eviction(tmp_path, "paused")
    assert caught.value.code == "MR-2014"
    assert len(purge(relay, {"paused": at(1)}, "paused")) == 3
    relay.close()
