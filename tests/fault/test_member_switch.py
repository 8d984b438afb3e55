"""The member that is read dies, stalls, lags or is drained: another one continues, and tasks see only a pause.

Each event: every row once and in order, no error in the task, and one recorded switch with its gap.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from millrace.deploy.servers import DatabaseServer, DatabaseSet
from millrace.producer.source.set_stream import Site
from millrace.producer.source.set_streams import Upstreams
from millrace.schemas.documents import (
    Account,
    Directives,
    Member,
    SecretPlace,
    SecretReference,
    SetDocument,
    TableFilter,
    UpstreamRules,
)
from millrace.schemas.gtid import Flavour
from millrace.schemas.progress import Progress
from millrace.schemas.stages import SwitchView
from tests.fixtures.servers import FLAVOURS, NewSet, mostly
from tests.kit.binlog.session import session
from tests.kit.capture.load import Load, assert_complete, load_on, wait_for_rows
from tests.kit.capture.rig import MemoryCapture
from tests.kit.relay.relay import UNVERIFIED, CuttingProxy, kill_dumps, member_of, position_of
from tests.kit.waiting import eventually

RULES = UpstreamRules(max_lag_s=2.0, hysteresis_s=1.0, cool_down_s=0.0)


@dataclass
class Reading:
    """A capture of a set. With ``proxies``, each member is reached through one."""

    servers: DatabaseSet
    capture: MemoryCapture
    load: Load
    addresses: tuple[Member, ...]  # of the members, in order
    proxies: tuple[CuttingProxy, ...] = ()
    directives: Directives = field(default_factory=Directives)
    asked: list[Directives] = field(default_factory=list)  # the directives that the stream has read

    def ask(self) -> Directives:
        """Return the directives, as ZooKeeper would."""
        self.asked.append(self.directives)
        return self.directives

    @property
    def member(self) -> Member:
        """The member that is read."""
        return self.capture.stream.choice.member

    @property
    def server(self) -> DatabaseServer:
        """Its server."""
        return self.servers.members[self.addresses.index(self.member)]

    @property
    def proxy(self) -> CuttingProxy:
        """Its proxy."""
        return self.proxies[self.addresses.index(self.member)]

    def switches(self) -> tuple[SwitchView, ...]:
        """The switches so far."""
        return self.capture.stream.captured().switches

    def wait_for_switch(self, count: int = 1) -> SwitchView:
        """The last of ``count`` switches; rows arrive after it, and no task was interrupted."""

        def switched() -> bool:
            assert self.capture.error is None, self.capture.error
            assert not self.capture.errors, self.capture.errors
            return len(self.switches()) >= count

        eventually(switched, what=f"{count} switches")
        wait_for_rows(self.capture)
        assert not self.capture.errors
        assert len(self.capture.members) == 1, "the task was attached once"
        return self.switches()[-1]


@contextmanager
def reading(
    servers: DatabaseSet,
    folder: Path,
    *,
    proxies: tuple[CuttingProxy, ...] = (),
    settings: Sequence[str] = (),
) -> Iterator[Reading]:
    """Capture under load, from a replica."""
    addresses = tuple(proxy.member for proxy in proxies) or tuple(map(member_of, servers.members))
    secret = folder / "password"
    secret.write_text(servers.password)
    document = SetDocument(
        name="f",
        members=addresses,
        account=Account(servers.user, SecretReference(SecretPlace.FILE, str(secret))),
        tls=UNVERIFIED,
        upstream=RULES,
    )
    wishes: list[Reading] = []
    site = Site(
        root=folder / "relay",
        directives=lambda _: wishes[0].ask() if wishes else Directives(),
    )
    with load_on(servers, settings) as load:
        progress = Progress(position_of(servers.primary), None, 0)
        tables = TableFilter(include=("f.*",))
        with MemoryCapture(Upstreams(site), document, tables, progress) as capture:
            wishes.append(Reading(servers, capture, load, addresses, proxies))
            load.resume()
            wait_for_rows(capture)
            yield wishes[0]
            load.stop()


def _kill(read: Reading) -> None:
    read.server.kill()


def _freeze(read: Reading) -> None:
    read.server.process.pause()


def _stop_applying(read: Reading) -> None:
    read.server.execute(f"STOP {_replica(read)} SQL_THREAD")


def _delay(read: Reading) -> None:
    """A delayed replica: STOP, CHANGE … DELAY, START."""
    is_mariadb = read.servers.flavour is Flavour.MARIADB
    change = "MASTER TO MASTER_DELAY" if is_mariadb else "REPLICATION SOURCE TO SOURCE_DELAY"
    for statement in (
        f"STOP {_replica(read)}",
        f"CHANGE {change} = 600",
        f"START {_replica(read)}",
    ):
        read.server.execute(statement)


def _reset(read: Reading) -> None:
    """The replica forgets its binlog; it has another history from then on."""
    is_mariadb = read.servers.flavour is Flavour.MARIADB
    read.server.execute(f"STOP {_replica(read)}")
    read.server.execute("RESET MASTER" if is_mariadb else "RESET BINARY LOGS AND GTIDS")


def _drain(read: Reading) -> None:
    read.directives = Directives(drained=frozenset({read.member}))


def _pin_the_primary(read: Reading) -> None:
    read.directives = Directives(pinned=read.addresses[0])


def _mute(read: Reading) -> None:
    """A network that loses everything: connections stay open."""
    read.proxy.mute()


def _cut_inside_a_packet(read: Reading) -> None:
    """Each connection ends after some bytes, soon inside the head of the first packet."""
    read.proxy.cut_after_bytes = 10
    kill_dumps(read.server)


def _replica(read: Reading) -> str:
    return "SLAVE" if read.servers.flavour is Flavour.MARIADB else "REPLICA"


EVENTS = (_kill, _freeze, _stop_applying, _delay, _reset, _drain, _pin_the_primary)
NETWORK_EVENTS = (_mute, _cut_inside_a_packet)


# ``test_stream_moves_under_tags_and_domains`` has some of them; a mute network is like a frozen member; a stopped
# applier is late, and tests/unit/test_judge.py and test_source_choice.py have the rules for lag and for pins
@pytest.mark.chaos
@pytest.mark.parametrize(
    "event", EVENTS + NETWORK_EVENTS, ids=lambda event: event.__name__.strip("_")
)
@pytest.mark.parametrize("flavour", FLAVOURS, ids=str)
@pytest.mark.guarantee("failover")
def test_stream_moves_to_another_member(
    flavour: Flavour, event: Callable[[Reading], None], new_set: NewSet, tmp_path: Path
) -> None:
    """Under load; the task keeps its stream and its converter."""
    servers = new_set(flavour, replica_count=2)
    with ExitStack() as stack:
        proxies = _proxies(stack, servers) if event in NETWORK_EVENTS else ()
        read = stack.enter_context(reading(servers, tmp_path, proxies=proxies))
        left, server = read.member, read.server
        assert left != read.addresses[0], "a replica is read"
        try:
            event(read)
            switch = read.wait_for_switch()
            assert switch.source == str(left)
            assert switch.target == str(read.member) != switch.source
            assert_complete(read.capture, read.load)
        finally:
            if event is _freeze:
                server.process.resume()


@mostly(Flavour.MARIADB)
@pytest.mark.guarantee("failover")
def test_member_with_other_changes_is_refused(
    flavour: Flavour, new_set: NewSet, tmp_path: Path
) -> None:
    """One replica has another row than the rest and logs it: the stream goes to the primary instead."""
    servers = new_set(flavour, replica_count=2)
    with reading(servers, tmp_path) as read:
        left = read.server
        (other,) = (replica for replica in servers.replicas if replica is not left)
        read.load.pause()
        servers.wait_for_replicas()
        _change_unlogged(other, "UPDATE f.t SET v = 'other' WHERE id = 1")
        servers.execute("UPDATE f.t SET v = REPEAT('v', 300) WHERE id = 2")
        servers.execute("UPDATE f.t SET v = CONCAT(v, '') WHERE id = 1")  # no change on the rest
        servers.execute("DELETE FROM f.t WHERE id = 1")  # other logs its own row
        servers.wait_for_replicas()
        reached = position_of(left)
        eventually(lambda: read.capture.stream.relay.position().includes(reached), what="received")
        left.kill()
        read.load.resume()
        switch = read.wait_for_switch()
        assert switch.target == str(read.addresses[0])
        assert "MR-1037" in str(switch.refused)


SORTS_OF_GTIDS = {
    Flavour.MYSQL: ("SET gtid_next = 'AUTOMATIC:blue'", "SET gtid_next = 'AUTOMATIC'"),
    Flavour.MARIADB: tuple(f"SET SESSION gtid_domain_id = {domain}" for domain in (0, 7, 3)),
}


# two members leave one after the other; deaths are in the other tests here
LEAVING = {Flavour.MYSQL: (_freeze, _drain), Flavour.MARIADB: (_cut_inside_a_packet, _reset)}


@pytest.mark.parametrize("flavour", FLAVOURS, ids=str)
@pytest.mark.guarantee("failover")
def test_stream_moves_under_tags_and_domains(
    flavour: Flavour, new_set: NewSet, tmp_path: Path
) -> None:
    """MySQL's tagged GTIDs, MariaDB's domains: one member after the other can't be read anymore."""
    servers = new_set(flavour, replica_count=2)
    with ExitStack() as stack:
        proxies = _proxies(stack, servers) if flavour is Flavour.MARIADB else ()
        settings = SORTS_OF_GTIDS[flavour]
        read = stack.enter_context(reading(servers, tmp_path, proxies=proxies, settings=settings))
        for number, event in enumerate(LEAVING[flavour], 1):
            left, server = read.member, read.server
            if event is _freeze:
                stack.callback(server.process.resume)
            event(read)
            switch = read.wait_for_switch(number)
            assert switch.source == str(left)
            assert switch.target == str(read.member) != switch.source
        assert_complete(read.capture, read.load)
        sorts = str(read.capture.stream.relay.position())
        assert all(word in sorts for word in ("7-", "3-", "0-")) or "blue" in sorts, sorts


def _proxies(stack: ExitStack, servers: DatabaseSet) -> tuple[CuttingProxy, ...]:
    members = map(member_of, servers.members)
    return tuple(stack.enter_context(CuttingProxy(member)) for member in members)


def _change_unlogged(server: DatabaseServer, statement: str) -> None:
    """Change a replica's row without a trace in its binlog."""
    with session(server) as connection:
        connection.execute("SET SESSION sql_log_bin = 0")
        connection.execute(statement)


@mostly(Flavour.MYSQL)
@pytest.mark.guarantee("failover")
def test_stream_waits_for_a_member_that_is_late(
    flavour: Flavour, new_set: NewSet, tmp_path: Path
) -> None:
    """The only other member misses transactions when the member dies: it is read once it has them, not before."""
    servers = new_set(flavour, replica_count=2)
    with reading(servers, tmp_path) as read:
        left = read.server
        (other,) = (replica for replica in servers.replicas if replica is not left)
        read.directives = Directives(pinned=read.member, drained=frozenset({read.addresses[0]}))
        # the second answer is asked for after the first was used
        eventually(lambda: read.asked.count(read.directives) > 1, what="directives known")
        word = _replica(read)
        other.execute(f"STOP {word} SQL_THREAD")
        wait_for_rows(read.capture)
        read.load.pause()
        reached = position_of(servers.primary)
        eventually(lambda: read.capture.stream.relay.position().includes(reached), what="received")
        left.kill()
        eventually(lambda: "MR-1036" in read.capture.stream.captured().source.why, what="a refusal")
        other.execute(f"START {word} SQL_THREAD")
        read.load.resume()
        switch = read.wait_for_switch()
        assert switch.target == str(member_of(other))
        assert_complete(read.capture, read.load)
