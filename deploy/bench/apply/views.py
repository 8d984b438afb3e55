"""Figures of apply under a view: the same backlogs, and beside each its rate without the view.

    apply.view    the load of ``apply.bulk`` under another name of the database and a condition that admits all rows;
                  the peer is a task without a view, measured in turn on the same servers by the same driver

A task whose view names a database otherwise does not execute statements about it. So each measurement has a new
database on both servers and a new task, which starts after it. The driver stays, so it is warm from the round before.
"""

from collections.abc import Iterator
from functools import partial
from statistics import median

from millrace.deploy.bench.apply import workloads
from millrace.deploy.bench.apply.backlogs import BULK, ROWS
from millrace.deploy.bench.apply.clock import binlog_clock
from millrace.deploy.bench.apply.workloads import Workload
from millrace.deploy.bench.figure import Figure, Size, announced_rounds, say
from millrace.deploy.bench.scene import Scene, open_scene
from millrace.deploy.local.services import APPLY_TASK
from millrace.deploy.servers import sql
from millrace.errors import Fatal

VIEW = "apply.view"
_SEEN = workloads.bulk("bench_view")
_RULES = (
    f'tables: [{{from: "{workloads.bulk().database}.*", to: "{_SEEN.database}.{{table}}",'
    ' where: "id >= 0"}]\n'
)


def view_figures(size: Size) -> Iterator[Figure]:
    """The line."""
    plain: list[float] = []
    viewed: list[float] = []
    with open_scene(size.flavour) as scene:
        scene.stack.run_command("task", "delete", APPLY_TASK)
        for number in announced_rounds(size):
            plain.append(_rate(scene, workloads.bulk(), f"plain{number}", "", size))
            viewed.append(_rate(scene, _SEEN, f"viewed{number}", _RULES, size))
            say(f"  {viewed[-1]:,.0f}/s through the view, {plain[-1]:,.0f}/s without")
    yield Figure(VIEW, median(viewed[1:]), ROWS, f"{BULK} without a view", median(plain[1:]))


def _rate(scene: Scene, seen: Workload, task: str, rules: str, size: Size) -> float:
    """Changes per second of a new task, which writes the database of ``seen``."""
    workload, target = workloads.bulk(), scene.stack.target
    scene.source.execute(f"DROP DATABASE IF EXISTS {workload.database}")
    workload.create(scene.connect)
    target.execute(f"DROP DATABASE IF EXISTS {seen.database}")
    seen.create(partial(sql.open_root, target.socket))
    _create_task(scene, task, rules)
    scene.wait_captured()
    scene.wait_seq(scene.seq(), task)
    changes = scene.write(workload, workload.sized(size.scale), task)
    scene.wait_captured()
    with binlog_clock(target) as clock:
        scene.resume(task)
        scene.wait_seq(scene.seq(), task)
    _check(scene, workload, seen)
    scene.stack.run_command("task", "delete", task)
    return clock.pace().rate(changes)


def _create_task(scene: Scene, task: str, rules: str) -> None:
    document = (scene.stack.folder / f"{APPLY_TASK}.yaml").read_text()
    document = document.replace(f"task: {APPLY_TASK}\n", f"task: {task}\n")
    begin = scene.source.gtid_position()
    document = document.replace("start: first\n", f'start: "{begin}"\n')
    file = scene.stack.folder / f"{task}.yaml"
    file.write_text(document + rules)
    scene.stack.run_command("task", "create", "-f", str(file))


def _check(scene: Scene, workload: Workload, seen: Workload) -> None:
    """Fatal MR-8004 if the target has other rows than the source."""
    for table in workload.tables:
        ((_, wanted),) = scene.source.execute(f"CHECKSUM TABLE {workload.database}.{table}")
        ((_, found),) = scene.stack.target.execute(f"CHECKSUM TABLE {seen.database}.{table}")
        if found != wanted:
            raise Fatal("MR-8004", f"the target has other rows in {table} of {seen.database}")
