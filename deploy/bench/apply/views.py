"""Figures of apply under a view: the same backlogs, and beside each its rate without the view.

    apply.view    the load of ``apply.bulk`` under another name of the database and a condition that admits all rows;
                  the peer is the same task without a view, measured just before on the same servers

A task whose view names a database otherwise does not execute statements about it. So each round has a new database on
both servers and a new task, which starts after it. The driver, which is warm from the rounds before, stays.
"""

from collections.abc import Iterator
from functools import partial
from statistics import median

from millrace.deploy.bench.apply import workloads
from millrace.deploy.bench.apply.backlogs import BULK, ROWS, measure
from millrace.deploy.bench.apply.clock import binlog_clock
from millrace.deploy.bench.apply.workloads import Workload
from millrace.deploy.bench.figure import Figure, Size, announced_rounds, say
from millrace.deploy.bench.scene import Scene, open_scene
from millrace.deploy.local.services import APPLY_TASK
from millrace.deploy.servers import sql
from millrace.errors import Fatal

VIEW = "apply.view"
TARGET_DATABASE = "bench_view"
_RULES = 'tables: [{from: "%s.*", to: "%s.{table}", where: "id >= 0"}]\n'


def view_figures(size: Size) -> Iterator[Figure]:
    """The line."""
    workload, seen = workloads.bulk(), workloads.bulk(TARGET_DATABASE)
    with open_scene(size.flavour) as scene:
        plain = measure(scene, workload, size)
        scene.stack.run_command("task", "delete", APPLY_TASK)
        rates = [
            _rate(scene, workload, seen, f"view{number}", size) for number in announced_rounds(size)
        ]
    yield Figure(VIEW, median(rates[1:]), ROWS, f"{BULK} without a view", median(plain.ours))


def _rate(scene: Scene, workload: Workload, seen: Workload, task: str, size: Size) -> float:
    """Changes per second of a new task."""
    scene.source.execute(f"DROP DATABASE {workload.database}")
    workload.create(scene.connect)
    scene.stack.target.execute(f"DROP DATABASE IF EXISTS {seen.database}")
    seen.create(partial(sql.open_root, scene.stack.target.socket))
    _create_task(scene, task, workload.database)
    scene.wait_captured()
    scene.wait_seq(scene.seq(), task)
    changes = scene.write(workload, workload.sized(size.scale), task)
    scene.wait_captured()
    with binlog_clock(scene.stack.target) as clock:
        scene.resume(task)
        scene.wait_seq(scene.seq(), task)
    rate = clock.pace().rate(changes)
    say(f"  {rate:,.0f}/s through the view")
    _check(scene, workload, seen)
    scene.stack.run_command("task", "delete", task)
    return rate


def _create_task(scene: Scene, task: str, database: str) -> None:
    document = (scene.stack.folder / f"{APPLY_TASK}.yaml").read_text()
    document = document.replace(f"task: {APPLY_TASK}\n", f"task: {task}\n")
    begin = scene.source.gtid_position()
    document = document.replace("start: first\n", f'start: "{begin}"\n')
    file = scene.stack.folder / f"{task}.yaml"
    file.write_text(document + _RULES % (database, TARGET_DATABASE))
    scene.stack.run_command("task", "create", "-f", str(file))


def _check(scene: Scene, workload: Workload, seen: Workload) -> None:
    """Fatal MR-8004 if the target has other rows than the source."""
    for table in workload.tables:
        ((_, wanted),) = scene.source.execute(f"CHECKSUM TABLE {workload.database}.{table}")
        ((_, found),) = scene.stack.target.execute(f"CHECKSUM TABLE {seen.database}.{table}")
        if found != wanted:
            raise Fatal("MR-8004", f"the target has other rows in {table} under the view")
