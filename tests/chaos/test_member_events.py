"""Members die, stall, lag, fail over and are cut off in a random order: whole stacks, from the writers to the target.

The seed of a failed run is in its output; MILLRACE_SEED replays it. Each event is printed with the gap of its switch.
Every member is reached through a proxy, which can cut connections inside a packet.
"""

import os
import random
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial

import pytest

from millrace.deploy.local.readiness import task_report
from millrace.deploy.local.services import CAPTURE_TASK, SOURCE_SET
from millrace.deploy.servers import DatabaseServer, DatabaseSet
from millrace.deploy.workload.shop import Connection
from millrace.schemas.gtid import Flavour
from millrace.schemas.stages import Captured, SwitchView
from millrace.schemas.status import TaskReport
from millrace.zk.client.session import Session
from tests.fixtures.stack import FaultStack
from tests.kit.capture.promote import fail_over
from tests.kit.faults.roaming import RoamingConnection
from tests.kit.relay.relay import CuttingProxy, member_of
from tests.kit.waiting import eventually
from tests.oracle.bank import bank_load
from tests.oracle.run import Ledger, ledger_load

EVENTS_COUNT = 30
DDL_INTERVAL_S = 4.0  # each statement takes a Spark job; all must be applied at the end
RULES = "upstream: {max_lag_s: 2, hysteresis_s: 1, cool_down_s: 0}\n"  # short waits
End = Callable[[], None]


@dataclass
class Events:
    """Events on the member that is read, each with its end. ``witness``: its binlog must hold everything."""

    stack: FaultStack
    session: Session
    proxies: dict[int, CuttingProxy]  # by the port of the member
    draw: random.Random
    ledger: Ledger
    witness: DatabaseServer
    ddl_lock: threading.Lock
    gaps: dict[str, list[float]] = field(default_factory=dict)

    def happen(self, event: Callable[["Events", DatabaseServer], End | None]) -> None:
        """Let ``event`` happen to the replica that is read, wait until another one is read, and end the event.

        An event without an end causes a switch only if the replica that is read is the one that it changes.
        """
        self.source.wait_for_replicas()
        eventually(self.is_at_rest, what="a replica is read")
        before, epoch = self.captured(), self.report().epoch
        name = event.__name__.strip("_")
        print(f"{name:16} on {before.source.port}", flush=True)
        end = event(self, self.server)
        try:
            if end is not None or self.server is self.source.primary:
                eventually(lambda: self.new_switches(before), what=f"a switch: {name}")
            self.ledger.wait_seen()
        finally:
            if end is not None:
                end()
        assert self.report().epoch == epoch, "only a pause"
        for switch in self.new_switches(before)[:1]:
            self.gaps.setdefault(name, []).append(switch.gap_s)
            print(f"{'':16} {switch.gap_s:6.2f} s  {switch.why[:100]}", flush=True)

    @property
    def source(self) -> DatabaseSet:
        """The set as it is now."""
        return self.stack.stack.source

    @property
    def server(self) -> DatabaseServer:
        """The member that is read."""
        port = self.captured().source.port
        return next(each for each in self.source.members if self.proxies[each.port].port == port)

    def proxy(self, server: DatabaseServer) -> CuttingProxy:
        """Its proxy."""
        return self.proxies[server.port]

    def report(self) -> TaskReport:
        """The capture task's."""
        return task_report(self.session, CAPTURE_TASK)

    def captured(self) -> Captured:
        """Its stage."""
        found: list[Captured] = []

        def is_there() -> bool:
            stage = self.report().captured
            found.extend(() if stage is None else (stage,))
            return bool(found)

        eventually(is_there, what="the stage of the capture task")
        return found[0]

    def is_at_rest(self) -> bool:
        """Whether a replica is read and the switch to it is complete."""
        stage = self.captured()
        is_complete = not stage.switches or stage.switches[-1].target == _address(stage)
        return is_complete and stage.source.role == "replica"

    def new_switches(self, before: Captured) -> list[SwitchView]:
        """The switches after ``before`` from its member, oldest first."""
        known = {switch.at for switch in before.switches}
        new = (switch for switch in self.captured().switches if switch.at not in known)
        return [switch for switch in new if switch.source == _address(before)]

    def direct(self, action: str, server: DatabaseServer) -> None:
        """`millrace replica`."""
        address = str(self.proxy(server).member)
        self.stack.stack.run_command("replica", action, SOURCE_SET, address)


def _address(stage: Captured) -> str:
    return f"{stage.source.host}:{stage.source.port}"


def _kill(events: Events, server: DatabaseServer) -> End:
    server.kill()
    return server.start


def _freeze(events: Events, server: DatabaseServer) -> End:
    server.process.pause()
    return server.process.resume


def _stop_applying(events: Events, server: DatabaseServer) -> End:
    server.execute(f"STOP {_replica(server)} SQL_THREAD")
    return lambda: _run(server, f"START {_replica(server)} SQL_THREAD")


def _delay(events: Events, server: DatabaseServer) -> End:
    is_mariadb = server.flavour is Flavour.MARIADB
    change = "MASTER TO MASTER_DELAY" if is_mariadb else "REPLICATION SOURCE TO SOURCE_DELAY"

    def apply_late(seconds: int) -> None:
        stop, start = (f"{word} {_replica(server)}" for word in ("STOP", "START"))
        _run(server, stop, f"CHANGE {change} = {seconds}", start)

    apply_late(600)
    return lambda: apply_late(0)


def _reset(events: Events, server: DatabaseServer) -> End:
    """The replica forgets its binlog. The witness is only drained."""
    if server is events.witness:
        return _drain(events, server)
    is_mariadb = server.flavour is Flavour.MARIADB
    _run(server, f"STOP {_replica(server)}")
    executed = server.gtid_position()
    _run(server, "RESET MASTER" if is_mariadb else "RESET BINARY LOGS AND GTIDS")

    def end() -> None:
        if not is_mariadb:
            server.execute("SET GLOBAL gtid_purged = %s", (executed,))
        _run(server, f"START {_replica(server)}")

    return end


def _drain(events: Events, server: DatabaseServer) -> End:
    events.direct("drain", server)
    return lambda: events.direct("undrain", server)


def _pin_another(events: Events, server: DatabaseServer) -> End:
    another = events.draw.choice([each for each in events.source.members if each is not server])
    events.direct("pin", another)
    return lambda: events.direct("unpin", another)


def _cut_inside_a_packet(events: Events, server: DatabaseServer) -> End:
    """The stream and every new connection end inside a packet."""
    events.proxy(server).tear()
    return events.proxy(server).mend


def _mute(events: Events, server: DatabaseServer) -> End:
    """A network that loses everything: connections stay open."""
    proxy = events.proxy(server)
    proxy.mute()

    def end() -> None:
        proxy.unmute()
        proxy.cut()

    return end


def _fail_over(events: Events, server: DatabaseServer) -> None:
    """The primary dies. The replica that is read is promoted, or it follows the other one."""

    def promoted(source: DatabaseSet) -> None:
        events.stack.stack.source = source

    new = events.draw.choice(events.source.replicas)
    with events.ddl_lock:
        fail_over(events.source, new, on_promoted=promoted)


def _run(server: DatabaseServer, *statements: str) -> None:
    for statement in statements:
        server.execute(statement)


def _replica(server: DatabaseServer) -> str:
    return "SLAVE" if server.flavour is Flavour.MARIADB else "REPLICA"


EVENTS = (
    _kill,
    _freeze,
    _stop_applying,
    _delay,
    _reset,
    _drain,
    _pin_another,
    _cut_inside_a_packet,
    _mute,
    _fail_over,
)


@contextmanager
def proxied(stack: FaultStack, session: Session) -> Iterator[dict[int, CuttingProxy]]:
    """Proxies to all members, which the set document names from now on."""
    path = stack.stack.folder / f"{SOURCE_SET}.yaml"
    text, members = path.read_text() + RULES, stack.stack.source.members
    with ExitStack() as block:
        proxies = {
            each.port: block.enter_context(CuttingProxy(member_of(each))) for each in members
        }
        for port, proxy in proxies.items():
            assert f"port: {port}" in text
            text = text.replace(f"port: {port}", f"port: {proxy.port}")
        path.write_text(text)
        stack.stack.run_command("set", "create", "-f", str(path), "--replace")
        ports = {proxy.port for proxy in proxies.values()}

        def is_used() -> bool:
            stage = task_report(session, CAPTURE_TASK).captured
            return stage is not None and stage.source.port in ports

        eventually(is_used, what="a member is read through its proxy")
        yield proxies


@pytest.mark.chaos
@pytest.mark.stack
@pytest.mark.guarantee("failover")
def test_random_events_on_members_lose_no_row(failover_stack: FaultStack) -> None:
    """Thirty events under the loads of the ledger and the bank; topic, a member's binlog and the target hold both."""
    stack, seed = failover_stack, int(os.environ.get("MILLRACE_SEED") or random.randrange(10**6))
    print(f"seed {seed}", flush=True)
    ddl_lock = threading.Lock()

    def connect(database: str | None) -> Connection:
        return RoamingConnection(partial(stack.connect, database), ddl_lock)

    with ExitStack() as block:
        session = block.enter_context(stack.control())
        proxies = block.enter_context(proxied(stack, session))
        ledger = block.enter_context(
            ledger_load(stack, seed, connect=connect, ddl_interval_s=DDL_INTERVAL_S)
        )
        draw, witness = random.Random(seed), stack.stack.source.primary
        events = Events(stack, session, proxies, draw, ledger, witness, ddl_lock)
        with bank_load(stack, seed, connect) as bank:
            ledger.wait_seen()
            repeats = -(-EVENTS_COUNT // len(EVENTS))
            for event in draw.sample(EVENTS * repeats, EVENTS_COUNT):
                events.happen(event)
            ledger.wait_seen()
        ledger.check()
        assert bank.check() > EVENTS_COUNT
        stack.settle()
    for name, gaps in sorted(events.gaps.items()):
        print(f"{name:20} {len(gaps)} gaps, {min(gaps):.2f} to {max(gaps):.2f} s", flush=True)
