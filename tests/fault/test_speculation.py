"""Spark executes one turn twice at the same time on a real cluster: each row is applied once.

Millrace disables Spark's speculation (`test_spark_never_repeats_a_task`). Here a setting enables it, as an operator's
may: a copy runs beside a Python worker that is stopped in its turn. Spark places no copy on the host of the first, so
this cluster has two hosts: 127.0.0.1 and 127.0.0.2.
"""

from pathlib import Path

import pytest

from millrace.consumer.turn.context import DEFAULT_LIMITS
from millrace.deploy.servers import DatabaseServer, KafkaServer
from millrace.deploy.servers.spark import driver_settings
from tests.kit.faults.spark_task import Bag, cluster_with, driving, wait_for

ROWS = 2 * DEFAULT_LIMITS.window.rows  # two windows
SETTINGS = {
    **driver_settings(2),
    "spark.speculation": "true",
    "spark.speculation.task.duration.threshold": "30s",  # for the first to reach its point
}


@pytest.mark.chaos
@pytest.mark.parametrize(
    "point", ["apply.after_turn", "apply.before_lane_commit", "apply.after_lane_commit"]
)
def test_turn_executed_twice_by_spark_is_applied_once(
    kafka: KafkaServer, target_server: DatabaseServer, name: str, tmp_path: Path, *, point: str
) -> None:
    """A Python worker stops in its turn, and Spark executes the turn again on another host. The copy is refused, the
    driver starts again, and a later turn applies the rows. The first resumes and writes nothing: each row once."""
    bag = Bag(kafka, target_server, name, rows=ROWS)
    with (
        cluster_with(tmp_path, f"{point}:stop") as cluster,
        driving(tmp_path, cluster, bag, SETTINGS) as driver,
    ):
        wait_for(lambda: bool(cluster.stopped()), driver, "a turn is stopped")
        run = bag.run()
        what = "the copy was refused, and the driver started again"
        wait_for(lambda: bag.run() > run, driver, what)

        def is_applied() -> bool:
            cluster.wake()  # a Python worker that begins on a host stops there, too
            return bag.is_applied()

        wait_for(is_applied, driver, "the rows are applied")
    bag.check()
