"""What the service stands on goes away under load and comes back: the task says so and goes on by itself."""

from functools import partial

from deploy.servers import DatabaseServer
from deploy.services import APPLY_TASK, CAPTURE_TASK
from schemas.gtid import Flavour
from schemas.status import TaskState
from tests.fix_stack import FaultStack, on
from tests.waiting import eventually


@on(Flavour.MYSQL)
def test_a_killed_broker_costs_time_and_no_record(fault_stack: FaultStack) -> None:
    """kill -9 of the only broker: capture and apply are degraded with a code, and go on when it is back."""
    with fault_stack.load("broker"):
        fault_stack.wait_published()
        fault_stack.stack.kafka.kill()
        told = fault_stack.wait_report(CAPTURE_TASK, TaskState.DEGRADED, "MR-3001")
        assert told.fix
        fault_stack.stack.kafka.start()
    fault_stack.settle()


@on(Flavour.MYSQL)
def test_a_killed_target_costs_time_and_no_row(fault_stack: FaultStack) -> None:
    """kill -9 of the target server: apply is degraded with a code, and goes on when it is back."""
    with fault_stack.load("target"):
        fault_stack.wait_published()
        fault_stack.stack.target.kill()
        told = fault_stack.wait_report(APPLY_TASK, TaskState.DEGRADED, "MR-5001")
        assert told.fix
        fault_stack.stack.target.start()
    fault_stack.settle()


@on(Flavour.MARIADB)
def test_a_killed_replica_is_left_for_another_member(fault_stack: FaultStack) -> None:
    """The member that is read dies: the task says so, goes on with the one that is left, and nothing is lost."""
    (replica,) = fault_stack.stack.source.replicas
    with fault_stack.load("replica"):
        fault_stack.restart("worker")
        fault_stack.wait_published()
        source = fault_stack.status(CAPTURE_TASK)["figures"]["source"]
        assert source.endswith(f":{replica.port}")
        replica.kill()
        told = fault_stack.wait_report(CAPTURE_TASK, TaskState.DEGRADED, "MR-1006", "MR-1001")
        assert told.fix
        fault_stack.wait_published()
        replica.start()
    fault_stack.settle()


@on(Flavour.MARIADB)
def test_rows_go_on_while_zookeeper_is_away_and_after_its_sessions_have_ended(
    fault_stack: FaultStack,
) -> None:
    """Paused beyond the session timeout: rows move all the while; afterwards the tasks run under new epochs."""
    target = fault_stack.stack.target
    with fault_stack.load("ensemble"):
        fault_stack.wait_published()
        before = {task: fault_stack.status(task)["epoch"] for task in (CAPTURE_TASK, APPLY_TASK)}
        fault_stack.stack.zookeeper.pause()
        try:
            for number in range(3):
                fault_stack.fill(f"away_{number}", rows=10)
                eventually(
                    partial(_has_rows, target, f"away_{number}"),
                    timeout_s=30,
                    every_s=0.1,
                    what="rows arrive without ZooKeeper",
                )
            asked = fault_stack.stack.try_command("status", "--json")
            assert asked.returncode == 1
            assert "MR-4001" in asked.stderr
        finally:
            fault_stack.stack.zookeeper.resume()
        for task, epoch in before.items():
            told = fault_stack.wait_report(task, TaskState.RUNNING)
            assert told.epoch >= epoch
    fault_stack.settle()


@on(Flavour.MARIADB)
def test_sessions_ended_by_force_mean_new_epochs_and_no_row_lost_or_repeated(
    fault_stack: FaultStack,
) -> None:
    """The ensemble says that worker and apply driver are gone; they live, and take their tasks anew."""
    with fault_stack.load("expired"), fault_stack.control() as session:
        for task in (CAPTURE_TASK, APPLY_TASK):
            before = fault_stack.wait_report(task, TaskState.RUNNING).epoch
            fault_stack.expire_owner(session, task)
            fault_stack.wait_epoch_after(task, before)
    fault_stack.settle()


def _has_rows(target: DatabaseServer, database: str) -> bool:
    sql = "SELECT 1 FROM information_schema.tables WHERE table_schema = %s"
    return bool(target.execute(sql, (database,))) and target.execute(
        f"SELECT COUNT(*) FROM {database}.t"
    ) == [(10,)]
