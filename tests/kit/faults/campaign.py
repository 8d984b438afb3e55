"""Every registered fault point, the process that passes it, and how to make that process pass it under load.

``POINTS`` imports every module of the product to find the registered points. The prefix of a point's name gives its
process (``victim_of``). A point that the load alone reaches needs no entry here. One that needs more (a torn tail, a
purge, a moved task) has a ``Provocation``. A new point that is never passed makes a test fail.

    with stack.load("kill"):
        kill_at(stack, "publisher.before_commit")     # armed, provoked, dead by SIGKILL at that point
        stack.restart(victim_of("publisher.before_commit"))
"""

import importlib
import json
import os
import pkgutil
import shutil
import signal
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from millrace.deploy.local.services import APPLY_TASK, CAPTURE_TASK, SOURCE_SET
from millrace.faults import registered
from millrace.process.installation import PARTS
from tests.fixtures.stack import RUNNING_WORDS, FaultStack
from tests.kit.waiting import eventually

PACKAGES = tuple(f"millrace.{part}" for part in PARTS if part != "deploy")
VICTIMS = {  # by the longest prefix of a point's name
    "relay.after_eviction_record": "forked",  # tests/fault/test_relay_evictions.py kills it
    "relay.pack.": "forked",  # tests/fault/test_relay_compress.py kills these
    "relay.unpack.": "forked",
    "relay.quarantine.": "forked",  # tests/fault/test_relay_quarantine.py kills these
    "relay.": "worker",
    "upstream.": "worker",
    "publisher.": "worker",
    "capture.": "worker",
    "zk.run.slot.": "worker",
    "zk.placement.scheduler.": "scheduler",
    "apply.": "apply",
    "spread.": "cluster",  # tests/fault/test_spread_kills.py kills them
    "load.": "forked",  # tests/fault/test_load_kills.py kills these
    "streams.": "forked",  # tests/fault/test_stream_kills.py kills these
    "acls.": "command",  # `millrace cluster secure`: tests/fault/test_zk_access.py kills it
    "merge.": "forked",  # tests/integration/test_apply_merged.py passes it: documents do not merge yet
    "decision.": "forked",  # tests/fault/test_decision_kills.py kills these
    "compare.": "forked",  # tests/fault/test_repair_kills.py and test_compare_kills.py kill these
    "snapshot.": "forked",  # tests/fault/test_snapshot_kills.py kills these
    "slot.": "forked",  # tests/fault/test_slot_kills.py kills these
    "conflict.": "command",  # `millrace conflict`: tests/fault/test_conflict_kills.py kills it
    "follow.": "command",  # `millrace unsafe follow-topic`: tests/fault/test_follow_kills.py kills it
    "documents.": "command",  # commands that write documents: tests/fault/test_document_kills.py kills them
}
ELSEWHERE = ("cluster", "command", "forked")
# passed in a Python worker, which Spark replaces; only procedure_dropped in the driver
IN_A_TURN = "apply."
IN_A_LANE = ("apply.before_lane_commit", "apply.after_lane_commit")
# always passed by a process of the service before its task runs; the slot's points by each worker that takes a lease
RECOVERY = {
    "worker": (
        "zk.run.slot.after_acquire",
        "publisher.after_init",
        "publisher.after_tail_read",
        "publisher.before_fence",
        "publisher.after_fence",
        "capture.after_attach",
    ),
    "apply": ("zk.run.slot.after_acquire",),
    "scheduler": ("zk.placement.scheduler.after_election",),
}
STREAM_PASSAGE = 5  # a later pass, so that the point is reached in the stream and not at its start
OLD_S = 48 * 3600.0  # longer than any relay file is kept
LANES_ROWS = 15_000  # enough for lanes and a mark over them; a trickle is applied by one Spark task
LARGE_ROWS = 40_000  # more than a window


def _nothing(_stack: FaultStack) -> None:
    """Do nothing: the load is enough."""


@dataclass(frozen=True, slots=True)
class Provocation:
    """Leads to a point: ``before`` runs while its process is down, ``after`` when it runs with the point armed.

    ``undo`` runs after the kill.
    """

    before: Callable[[FaultStack], None] = _nothing
    after: Callable[[FaultStack], None] = _nothing
    undo: Callable[[FaultStack], None] = _nothing
    passage: int = 1
    prelude: str = ""  # a fault of another point that leads there


def _points() -> tuple[str, ...]:
    """The product's points; a test in the same process may have registered others."""
    for name in PACKAGES:
        package = importlib.import_module(name)
        for module in pkgutil.walk_packages(package.__path__, f"{name}."):
            importlib.import_module(module.name)
    return tuple(name for name in registered() if not name.startswith("test."))


def victim_of(point: str) -> str:
    """The service's process, ``cluster`` or ``command``, that passes the point; KeyError for an unknown prefix."""
    return VICTIMS[next(start for start in VICTIMS if point.startswith(start))]


def fault_of(point: str, action: str = "kill") -> str:
    """The point armed, in the form of MILLRACE_FAULT."""
    provocation = PROVOCATIONS.get(point, Provocation())
    return f"{provocation.prelude}{point}:{action}@{provocation.passage}"


def lead_to(stack: FaultStack, point: str, action: str) -> None:
    """Restart the point's process with the point armed, and lead it there."""
    victim = victim_of(point)
    provocation = PROVOCATIONS.get(point, Provocation())
    stack.end(victim)
    provocation.before(stack)
    stack.launch(victim, fault=fault_of(point, action))
    provocation.after(stack)


def kill_at(stack: FaultStack, point: str) -> None:
    """Lead to the point and wait until its process is dead by SIGKILL; its session and lease end at once."""
    victim = victim_of(point)
    is_turn = point.startswith(IN_A_TURN)
    lead_to(stack, point, "stop" if is_turn else "kill")
    if is_turn:  # the whole driver, with its turn at the point
        stack.wait_stopped(victim)
        stack.services[victim].kill()
    else:
        stack.wait_dead(victim)
        assert stack.services[victim].exit_status == -signal.SIGKILL
    stack.end(victim)
    stack.expire(stack.services[victim])
    PROVOCATIONS.get(point, Provocation()).undo(stack)


def kill_while_they_recover(stack: FaultStack, points: Mapping[str, str]) -> None:
    """Restart processes at the same time, each armed at a point of its start: each dies before its task runs.

    The scheduler is restarted without a fault as soon as it is dead: without it no worker gets a task.
    """
    logs = {name: stack.log_from_here(name) for name in points}
    for name, point in points.items():
        stack.launch(name, fault=f"{point}:kill")
    for name in sorted(points, key=lambda name: name != "scheduler"):
        stack.wait_dead(name)
        process = stack.services[name]
        assert process.exit_status == -signal.SIGKILL, process.failure(f"{process.exit_status}")
        assert not [line for line in logs[name]() if RUNNING_WORDS in line]
        stack.end(name)
        stack.expire(stack.services[name])
        if name == "scheduler":
            stack.launch(name)


# ---- provocations ----------------------------------------------------------------------------------


def _tear_the_tail(stack: FaultStack) -> None:
    stack.launch("worker", fault="relay.mid_write:kill@9")
    stack.wait_dead("worker")


def _begin_new_files(stack: FaultStack) -> None:
    for _ in range(2):
        for member in stack.stack.source.members:
            member.execute("FLUSH LOCAL BINARY LOGS")


def _let_files_age(stack: FaultStack) -> None:
    """Closed files before the published position, old enough for the next purge."""
    stack.launch("worker")
    _begin_new_files(stack)
    stack.wait_published()
    stack.end("worker")
    _age_all(_relay(stack))


def _age_all(root: Path) -> None:
    for path in root.rglob("*bin.*"):
        os.utime(path, (time.time() - OLD_S,) * 2)


def _drain_the_member(stack: FaultStack) -> None:
    """The member that is read is drained, again and again, until the worker has died at the point."""

    def is_dead() -> bool:
        if not stack.services["worker"].is_alive():
            return True
        listed = stack.stack.try_command("replica", "list", SOURCE_SET, "--json")
        for member in json.loads(listed.stdout):
            action = "drain" if member["chosen"] else "undrain"
            address = f"{member['host']}:{member['port']}"
            stack.stack.try_command("replica", action, SOURCE_SET, address)
        return False

    eventually(is_dead, every_s=1.0, what="the worker at its point")


def _leave_a_sub_directory(stack: FaultStack) -> None:
    """The relay log after a switch to another server: the old sub-directory is touched only by purge."""
    root = _relay(stack)
    index = root / "server-uuid.index"
    newest = index.read_text().splitlines()[-1]
    other = "ffffffff" + newest[8:] if len(newest) > 30 else f"9-99.{newest.rpartition('.')[2]}"
    (root / newest).rename(root / other)
    index.write_text(index.read_text().replace(newest, other))
    stack.launch("worker")
    stack.wait_published()
    stack.end("worker")
    _age_all(root)  # older leftovers too: purge removes the oldest first


def _delete_the_relay_log(stack: FaultStack) -> None:
    shutil.rmtree(_relay(stack))


def _relay(stack: FaultStack) -> Path:
    return Path(stack.stack.description.services.relay_dir) / SOURCE_SET


def _move_the_task(stack: FaultStack) -> None:
    """The task runs, is paused, and resumes after its process died."""
    stack.wait_running(CAPTURE_TASK)
    stack.stack.run_command("task", "pause", CAPTURE_TASK)
    stack.wait_dead("worker")
    stack.stack.run_command("task", "resume", CAPTURE_TASK)


def _make_assignments(stack: FaultStack) -> None:
    """Another worker starts and ends, so that a task must be assigned."""
    stack.end("worker")
    stack.launch("worker")


def _drop_the_procedure(stack: FaultStack) -> None:
    stack.stack.target.execute("DROP PROCEDURE millrace.wait_for_gtid")


def _fill(stack: FaultStack) -> None:
    """Enough rows for lanes, then a DDL statement."""
    name = f"fill_{time.monotonic_ns()}"
    stack.fill(name, rows=LANES_ROWS)
    stack.stack.source.execute(f"ALTER TABLE {name}.t ADD COLUMN w INT")


def _apply_whole_transactions(stack: FaultStack) -> None:
    document = stack.stack.folder / f"{APPLY_TASK}.yaml"
    whole = document.with_name("transactional.yaml")
    whole.write_text(document.read_text().replace("causal", "transactional"))
    stack.stack.run_command("task", "create", "-f", str(whole), "--replace")


def _apply_lanes(stack: FaultStack) -> None:
    document = stack.stack.folder / f"{APPLY_TASK}.yaml"
    stack.stack.run_command("task", "create", "-f", str(document), "--replace")


def _leave_a_backlog(stack: FaultStack) -> None:
    """More rows than a batch of the publisher has."""
    stack.fill(f"backlog_{time.monotonic_ns()}", rows=LARGE_ROWS)


def _fill_largely(stack: FaultStack) -> None:
    """One source transaction of several windows."""
    stack.fill(f"large_{time.monotonic_ns()}", rows=LARGE_ROWS)


PROVOCATIONS = {
    "relay.before_write": Provocation(passage=STREAM_PASSAGE),
    "relay.mid_write": Provocation(passage=STREAM_PASSAGE),
    "relay.after_write": Provocation(passage=STREAM_PASSAGE),
    "relay.before_fsync": Provocation(passage=2),
    "relay.after_fsync": Provocation(passage=2),
    "relay.before_meta": Provocation(passage=2),
    "relay.before_cut": Provocation(before=_tear_the_tail),
    "relay.after_cut": Provocation(before=_tear_the_tail),
    "relay.before_rotate": Provocation(after=_begin_new_files),
    "relay.after_rotate": Provocation(after=_begin_new_files),
    "relay.after_subdir": Provocation(before=_delete_the_relay_log),
    "relay.before_join": Provocation(after=_drain_the_member),
    "relay.after_join": Provocation(after=_drain_the_member),
    "relay.before_drop": Provocation(after=_drain_the_member, prelude="relay.before_join:raise,"),
    "relay.after_drop": Provocation(after=_drain_the_member, prelude="relay.before_join:raise,"),
    "upstream.before_switch": Provocation(after=_drain_the_member),
    "upstream.after_switch": Provocation(after=_drain_the_member),
    "relay.before_unlink": Provocation(before=_let_files_age),
    "relay.before_rmdir": Provocation(before=_leave_a_sub_directory),
    "publisher.before_begin": Provocation(passage=STREAM_PASSAGE),
    "publisher.after_begin": Provocation(passage=STREAM_PASSAGE),
    "publisher.between_chunks": Provocation(before=_leave_a_backlog),
    "publisher.mid_produce": Provocation(passage=STREAM_PASSAGE),
    "publisher.before_commit": Provocation(passage=STREAM_PASSAGE),
    "publisher.after_commit": Provocation(passage=STREAM_PASSAGE),
    "publisher.before_renew": Provocation(prelude="publisher.after_begin:raise@3,"),
    "publisher.after_renew": Provocation(prelude="publisher.after_begin:raise@3,"),
    "zk.run.slot.before_release": Provocation(after=_move_the_task),
    "zk.placement.scheduler.between_commits": Provocation(after=_make_assignments),
    "apply.procedure_dropped": Provocation(before=_drop_the_procedure),
    "apply.before_lane_commit": Provocation(after=_fill),
    "apply.after_lane_commit": Provocation(after=_fill),
    "apply.before_mark": Provocation(after=_fill),
    "apply.after_mark": Provocation(after=_fill),
    "apply.inside_large_transaction": Provocation(
        before=_apply_whole_transactions, after=_fill_largely, undo=_apply_lanes, passage=2
    ),
    "apply.ddl_before_intent": Provocation(after=_fill),
    "apply.ddl_after_intent": Provocation(after=_fill),
    "apply.ddl_after_execute": Provocation(after=_fill),
}
POINTS = _points()


def service_points(at_most: int) -> Mapping[str, tuple[str, ...]]:
    """The service's points in groups of ``at_most``, each of one process; a group's name is its first point."""
    groups: dict[str, tuple[str, ...]] = {}
    for victim in RECOVERY:
        points = [point for point in POINTS if victim_of(point) == victim]
        for first in range(0, len(points), at_most):
            groups[points[first]] = tuple(points[first : first + at_most])
    return groups
