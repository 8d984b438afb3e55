"""``publish.capture.cpu``: CPU µs a change of the capture worker while three publish tasks read its topic.

The peer is the same backlog with the tasks paused. A backlog keeps all of them busy at once.
"""

from collections.abc import Iterator
from statistics import median

from millrace.deploy.bench.apply import workloads
from millrace.deploy.bench.apply.processes import use_watch
from millrace.deploy.bench.capture.backlog import clock_of
from millrace.deploy.bench.figure import Figure, Size, announced_rounds, say
from millrace.deploy.bench.publish.tasks import SAMPLE_S, BenchTask, open_publish
from millrace.deploy.bench.scene import Scene
from millrace.deploy.bench.subscriber import Topics
from millrace.deploy.local.services import CAPTURE_TASK
from millrace.deploy.local.services import TOPIC as SET_TOPIC

LINE = "publish.capture.cpu"
DATABASE = "bench_beside"
FORMATS = ("json", "debezium-json", "json")


def beside_figures(size: Size) -> Iterator[Figure]:
    """The line."""
    tasks = [
        BenchTask(
            f"beside{number}",
            ("plain", "orders"),
            {"include": [f"{DATABASE}_*.*"], "records": each},
        )
        for number, each in enumerate(FORMATS)
    ]
    alone: list[float] = []
    beside: list[float] = []
    with open_publish(size.flavour) as scene:
        for task in tasks:
            task.create(scene)
        for number in announced_rounds(size):
            for values, is_beside in ((alone, False), (beside, True)):
                cpu_us = _cpu_us(scene, tasks, f"{number}_{is_beside:d}", size, is_beside=is_beside)
                if number:
                    values.append(cpu_us)
    yield Figure(LINE, median(beside), "CPU us a change", "no publish task", median(alone))


def _cpu_us(
    scene: Scene, tasks: list[BenchTask], name: str, size: Size, *, is_beside: bool
) -> float:
    workload = workloads.bulk(f"{DATABASE}_{name}")
    workload.create(scene.connect)
    scene.wait_captured()
    if not is_beside:
        for task in tasks:
            scene.pause(task.name)
    changes = scene.write(workload, workload.sized(size.scale * 2), CAPTURE_TASK)
    wanted = scene.seq() + changes
    worker = next(each for each in scene.stack.services if each.spec.name == "millrace worker")
    topic = Topics(scene.bootstrap, [SET_TOPIC], 1)
    with clock_of(topic.end) as clock, use_watch((worker,), every_s=SAMPLE_S) as use:
        scene.resume()
        scene.wait_seq(wanted)
    pace = clock.pace()
    cpu_us = use.cpu_s(pace.begin_s, pace.end_s) * 1e6 / (changes * pace.share)
    say(f"  {'beside' if is_beside else 'alone'} {cpu_us:.2f} CPU us, {pace.rate(changes):,.0f}/s")
    for task in tasks:
        if not is_beside:
            scene.resume(task.name)
        scene.wait_seq(wanted, task.name)
    return cpu_us
