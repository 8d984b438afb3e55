"""Members of a set die, stall, lag and are drained in a random order: a whole stack, from the writer to the target.

The seed of a failed run is in its output; MILLRACE_SEED replays it. Each event is printed with the gap of its switch.
"""

import os
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from deploy.local.services import CAPTURE_TASK, SOURCE_SET
from deploy.local.stack import LocalStack, StackOptions
from deploy.servers import DatabaseServer
from schemas.gtid import Flavour
from tests.fixtures.servers import FLAVOURS
from tests.fixtures.stack import FaultStack
from tests.kit.waiting import eventually
from tests.oracle.run import ledger_load

EVENTS_COUNT = 30


@pytest.fixture(params=FLAVOURS, ids=str)
def stack(
    request: pytest.FixtureRequest, tmp_path: Path, session_timeout: None
) -> Iterator[FaultStack]:
    """A stack with two replicas; the test does not repair it."""
    options = StackOptions(flavour=request.param, replica_count=2)
    with LocalStack(tmp_path, options) as local:
        services = {process.spec.name.split()[-1]: process for process in local.services}
        yield FaultStack(local, services)


@dataclass
class Events:
    """Events on the member that is read, each with its end."""

    stack: FaultStack
    gaps: list[tuple[str, float]] = field(default_factory=list)  # event, gap_s

    def happen(self, event: Callable[["Events", DatabaseServer], Callable[[], None]]) -> None:
        """Let ``event`` happen to the member that is read, wait until another one is read, and end the event."""
        before = self.status()
        left = before["source"]
        server = self.server_of(left["port"])
        end = event(self, server)
        try:
            eventually(lambda: self.new_switches(before), what=f"a switch: {event.__name__}")
            self.stack.wait_published()
        finally:
            end()
        now, (switch, *_) = self.status(), self.new_switches(before)
        assert (now["epoch"], now["worker"]) == (before["epoch"], before["worker"]), "only a pause"
        self.gaps.append((event.__name__.strip("_"), switch["gap_s"]))
        print(f"{event.__name__.strip('_'):16} {switch['gap_s']:6.2f} s  {switch['why'][:100]}")
        self.stack.stack.source.wait_for_replicas()

    def status(self) -> dict[str, Any]:
        """The capture task's."""
        return self.stack.status(CAPTURE_TASK)

    def new_switches(self, before: dict[str, Any]) -> list[dict[str, Any]]:
        """The switches after ``before``, oldest first."""
        known = {switch["at"] for switch in before["switches"]}
        return [switch for switch in self.status()["switches"] if switch["at"] not in known]

    def server_of(self, port: int) -> DatabaseServer:
        """The member at this port."""
        members = self.stack.stack.source.members
        return next(member for member in members if member.port == port)

    def direct(self, action: str, server: DatabaseServer) -> None:
        """`millrace replica`."""
        address = f"127.0.0.1:{server.port}"
        done = self.stack.stack.try_command("replica", action, SOURCE_SET, address)
        assert done.returncode == 0, done.stderr


def _kill(events: Events, server: DatabaseServer) -> Callable[[], None]:
    server.kill()
    return server.start


def _freeze(events: Events, server: DatabaseServer) -> Callable[[], None]:
    server.process.pause()
    return server.process.resume


def _stop_applying(events: Events, server: DatabaseServer) -> Callable[[], None]:
    word = "SLAVE" if server.flavour is Flavour.MARIADB else "REPLICA"
    server.execute(f"STOP {word} SQL_THREAD")

    def end() -> None:
        server.execute(f"START {word} SQL_THREAD")

    return end


def _drain(events: Events, server: DatabaseServer) -> Callable[[], None]:
    events.direct("drain", server)
    return lambda: events.direct("undrain", server)


def _pin_another(events: Events, server: DatabaseServer) -> Callable[[], None]:
    another = next(member for member in events.stack.stack.source.members if member is not server)
    events.direct("pin", another)
    return lambda: events.direct("unpin", another)


REPLICA_EVENTS = (_kill, _freeze, _stop_applying, _drain, _pin_another)
PRIMARY_EVENTS = (_drain, _pin_another)


@pytest.mark.chaos
@pytest.mark.stack
@pytest.mark.guarantee("failover")
def test_random_events_on_members_lose_no_row(stack: FaultStack) -> None:
    """Thirty events under the ledger's load; topic, binlog and target hold one ledger."""
    seed = int(os.environ.get("MILLRACE_SEED") or random.randrange(10**6))
    print(f"seed {seed}")
    draw, events = random.Random(seed), Events(stack)
    with ledger_load(stack, seed) as ledger:
        ledger.wait_seen()
        for _ in range(EVENTS_COUNT):
            is_primary = events.status()["source"]["role"] == "primary"
            events.happen(draw.choice(PRIMARY_EVENTS if is_primary else REPLICA_EVENTS))
        ledger.wait_seen()
        ledger.check()
    stack.settle()
    assert len(events.gaps) == EVENTS_COUNT
