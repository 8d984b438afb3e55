"""Kills in a spread turn on a real Spark cluster of two executors: each row is applied once.

`make test` has them on the model (``tests/property/test_spread_model.py``).
"""

import os
import signal
from contextlib import suppress
from pathlib import Path

import pytest

from millrace.consumer.turn.spread_turn import BACKLOG_MIN
from millrace.deploy.servers import DatabaseServer, KafkaServer
from millrace.deploy.servers.process import session_members
from millrace.deploy.servers.spark import driver_settings
from tests.kit.faults.spark_task import Bag, Cluster, cluster_with, driver_of, driving, wait_for

ROWS = BACKLOG_MIN + 10_000
SETTINGS = driver_settings(2)
EXECUTOR = b"CoarseGrainedExecutorBackend"

pytestmark = [pytest.mark.chaos, pytest.mark.usefixtures("target_password")]


def _kill_executor(cluster: Cluster) -> None:
    """Kill the first worker's executor and the Python workers beside it, as a lost machine."""
    members = session_members(cluster.spark.workers[0].identity)
    executors = [pid for pid in members if EXECUTOR in Path(f"/proc/{pid}/cmdline").read_bytes()]
    assert executors
    for pid in (*executors, *(set(cluster.stopped()) & set(members))):
        with suppress(ProcessLookupError):  # the executor's end may end the others
            os.kill(pid, signal.SIGKILL)


@pytest.mark.parametrize(
    "point",
    [
        "spread.after_claim:stop",
        "apply.before_lane_commit:stop@2",
        "apply.after_lane_commit:stop@2",
    ],
)
def test_executor_killed_in_spread_turn_loses_no_row(
    kafka: KafkaServer, target_server: DatabaseServer, name: str, tmp_path: Path, *, point: str
) -> None:
    """Both shares stop there, and one dies with its executor. The turn fails; later turns skip what was applied."""
    bag = Bag(kafka, target_server, name, rows=ROWS)
    with (
        cluster_with(tmp_path, point) as cluster,
        driving(tmp_path, cluster, bag, SETTINGS) as driver,
    ):
        wait_for(lambda: len(cluster.stopped()) == 2, driver, "both shares are stopped")
        assert bag.claims() == 2
        run = bag.run()
        _kill_executor(cluster)
        cluster.wake()
        wait_for(lambda: bag.run() > run, driver, "the driver started again")

        def is_applied() -> bool:
            cluster.wake()  # new Python workers stop there, too
            return bag.is_applied()

        wait_for(is_applied, driver, "the rows are applied")
    bag.check()


@pytest.mark.parametrize("point", ["spread.after_fence", "spread.before_mark"])
def test_driver_killed_in_spread_turn_loses_no_row(
    kafka: KafkaServer, target_server: DatabaseServer, name: str, tmp_path: Path, *, point: str
) -> None:
    """The shares have applied all rows, or none, and the mark has not moved: the next driver continues there."""
    bag = Bag(kafka, target_server, name, rows=ROWS)
    with cluster_with(tmp_path) as cluster:
        killed = driver_of(tmp_path, cluster, bag, SETTINGS, fault=f"{point}:kill")
        try:
            wait_for(lambda: not killed.is_alive(), killed, "the driver is dead")
        finally:
            killed.kill()
        applied = target_server.execute(f"SELECT COUNT(*) FROM {name}.bag")
        assert applied == [(ROWS if point == "spread.before_mark" else 0,)]
        assert not bag.is_applied()
        with driving(tmp_path, cluster, bag, SETTINGS) as driver:
            wait_for(bag.is_applied, driver, "the mark is after the rows")
    bag.check()
