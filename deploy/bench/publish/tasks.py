"""Publish tasks in a stack without a target: their documents, and the clock of their topics."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

from millrace.deploy.bench.apply.clock import Pace
from millrace.deploy.bench.apply.processes import Part, use_watch
from millrace.deploy.bench.capture.backlog import EndClock, clock_of
from millrace.deploy.bench.figure import say
from millrace.deploy.bench.scene import Scene, open_scene
from millrace.deploy.bench.subscriber import Topics, check
from millrace.deploy.local.readiness import wait_for_tasks
from millrace.deploy.local.services import TOPIC
from millrace.errors import Fatal
from millrace.schemas.documents import yaml_from_plain

PARTITIONS = 8
SAMPLE_S = 0.1  # a catch-up takes some seconds, and its CPU is measured to a percent

open_publish = partial(open_scene, has_apply=False, has_driver=True)


@dataclass(frozen=True, slots=True)
class Published:
    """One catch-up of a publish task: its pace, and the CPU seconds of the executor, a Python worker, meanwhile."""

    pace: Pace
    cpu_s: float

    def cpu_us(self, records: int) -> float:
        """CPU microseconds a record."""
        return self.cpu_s * 1e6 / (records * self.pace.share)


@dataclass(frozen=True, slots=True)
class BenchTask:
    """A publish task over the databases ``<prefix>_<number>``; ``fields``: those of its document beside the usual."""

    name: str
    tables: tuple[str, ...]
    fields: Mapping[str, object]

    def create(self, scene: Scene) -> None:
        """Create it and wait until it runs."""
        plain = {
            "task": self.name,
            "kind": "publish",
            "topic": TOPIC,
            "kafka": {"bootstrap": scene.bootstrap},
            "registry": scene.stack.endpoints.registry,
            "partitions": PARTITIONS,
            "compression": "lz4",
            "topic_settings": {"replication_factor": 1, "min_insync_replicas": 1},
            **self.fields,
        }
        path = scene.stack.folder / f"{self.name}.yaml"
        path.write_text(yaml_from_plain(plain))
        scene.stack.run_command("task", "create", "-f", str(path))
        wait_for_tasks(scene.stack.ensemble, [self.name], check=scene.stack.check_services)

    def topics(self, scene: Scene, database: str) -> Topics:
        """Those of one database."""
        names = [f"{self.name}.{database}.{table}" for table in self.tables]
        return Topics(scene.bootstrap, names, PARTITIONS)

    @contextmanager
    def clock(self, scene: Scene, database: str) -> Iterator[EndClock]:
        """The clock of one database's topics, which need not exist yet."""
        with clock_of(self.topics(scene, database).end) as clock:
            yield clock

    def publish(self, scene: Scene, database: str, records: int) -> Published:
        """Resume it, wait until it has published all that the set topic has, pause it; its topics are checked.

        Fatal MR-8004 unless they have exactly ``records`` records, without a gap.
        """
        with (
            self.clock(scene, database) as clock,
            use_watch((scene.service(),), parts=(Part.WORKER,), every_s=SAMPLE_S) as use,
        ):
            scene.resume(self.name)
            scene.wait_seq(scene.seq(), self.name)
            clock.look()
        scene.pause(self.name)
        count = check(scene.bootstrap, self.topics(scene, database))
        if count != records:
            raise Fatal("MR-8004", f"{self.name} has published {count} records, not {records}")
        pace = clock.pace()
        published = Published(pace, use.cpu_s(pace.begin_s, pace.end_s))
        cpu_us = published.cpu_us(records)
        say(f"  {self.name} {pace.rate(records):,.0f}/s, {cpu_us:.2f} CPU us a record")
        return published
