"""A whole stack as a fixture, whose parts can be killed, stopped and started again with armed fault points.

``fault_stack`` (session scope, each flavour in turn) is ours to break: each test uses a database of its own, breaks
something under load, mends it, and calls ``settle``, which asks everybody: the task's own word, the topic (`topic
verify`), the target (`compare`).
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from deploy.servers import sql
from deploy.servers.process import ServerProcess
from deploy.services import APPLY_TASK, CAPTURE_TASK, TOPIC, service_specs
from deploy.stack import LocalStack, StackOptions
from deploy.workload.shop import Connection, Counts, create_shop, run_shop
from tests.fix_servers import FLAVOURS
from tests.waiting import eventually

SETTLE_S = 100
LOAD_RATE = 120.0


class FaultStack:
    """A running stack and its service's processes by name: registry, scheduler, worker, apply."""

    def __init__(self, stack: LocalStack) -> None:
        self.stack = stack
        self.services = {process.spec.name.split()[-1]: process for process in stack.services}
        self._specs = {
            spec.name.split()[-1]: spec for spec in service_specs(stack.folder, stack.endpoints)
        }

    def restart(self, name: str, *, fault: str = "") -> ServerProcess:
        """End a process and start it again, with ``MILLRACE_FAULT`` armed if asked for."""
        self.services[name].kill()
        spec = self._specs[name]
        armed = replace(spec, environment={**spec.environment, "MILLRACE_FAULT": fault})
        process = self.services[name] = ServerProcess(armed)
        self.stack.services = tuple(self.services.values())
        process.launch()
        return process

    def wait_dead(self, name: str, *, timeout_s: float = 40.0) -> None:
        """Until the process has ended by itself: the armed fault point was passed."""
        eventually(
            lambda: not self.services[name].is_alive(),
            timeout_s=timeout_s,
            what=f"{name} passes its armed fault point",
        )

    def connect(self, database: str | None = None) -> Connection:
        """A root connection to the source's primary."""
        return sql.open_root(self.stack.source.primary.socket, database=database)

    @contextmanager
    def load(self, database: str, *, duration_s: float = 4.0, seed: int = 7) -> Iterator[None]:
        """The shop in a database of its own, in a thread, for ``duration_s``; joined at the end of the block."""
        create_shop(self.connect, database=database)
        failures: list[BaseException] = []

        def work() -> None:
            try:
                run_shop(
                    lambda: self.connect(database),
                    duration_s=duration_s,
                    seed=seed,
                    counts=Counts(),
                    rate=LOAD_RATE,
                )
            except BaseException as failure:  # noqa: BLE001 - raised again below
                failures.append(failure)

        thread = threading.Thread(target=work, name="load")
        thread.start()
        try:
            yield
        finally:
            thread.join()
        if failures:
            raise failures[0]

    def settle(self) -> None:
        """Everything committed is applied, the topic proves whole, every row of the target equals the source's."""
        self.wait_published()
        self.stack.run_command("task", "wait", APPLY_TASK, "--timeout", str(SETTLE_S))
        compared = self.stack.try_command("compare", APPLY_TASK)
        assert compared.returncode == 0, compared.stdout + compared.stderr

    def wait_published(self) -> None:
        """Everything committed is published and the topic proves whole."""
        self.stack.run_command("task", "wait", CAPTURE_TASK, "--timeout", str(SETTLE_S))
        verified = self.stack.try_command("topic", "verify", TOPIC)
        assert verified.returncode == 0, verified.stdout + verified.stderr


@pytest.fixture(scope="session", params=FLAVOURS, ids=str)
def fault_stack(request: pytest.FixtureRequest, servers_folder: Path) -> Iterator[FaultStack]:
    """A stack with one replica, ours to break."""
    options = StackOptions(flavour=request.param, replica_count=1)
    with LocalStack(servers_folder / f"stack-{request.param}", options) as stack:
        yield FaultStack(stack)
