"""``upstream.notice`` and ``upstream.switch``: how soon a stream leaves a member, and how soon the next one sends.

A set has a primary and two replicas; a writer commits ``RATE`` one-row transactions a second. Each event of a round
happens to the member that is read, and ends when another one is read and the task has caught up:

    kill     kill -9                    death     notice: from the event to the decision to leave
    freeze   SIGSTOP                    death     switch: from the decision to the first byte of the next member
    stall    STOP REPLICA SQL_THREAD    lag       gap: from the last byte of the one to the first byte of the other
    drain    `millrace replica drain`

The worker reports each switch with its time, so the figures do not depend on how often the status is read. All clocks
are this machine's.
"""

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from datetime import datetime
from statistics import median

from millrace.background import Background
from millrace.deploy.bench.figure import Figure, Size, say
from millrace.deploy.bench.scene import POLL_S, Scene, open_capture
from millrace.deploy.local.readiness import task_report
from millrace.deploy.local.services import CAPTURE_TASK, SOURCE_SET
from millrace.deploy.servers import DatabaseServer
from millrace.errors import Fatal
from millrace.schemas.documents.model import UpstreamRules
from millrace.schemas.gtid import Flavour
from millrace.schemas.stages import Captured, SwitchView

DATABASE = "bench_upstream"
RATE = 200.0
SWITCH_S_MAX = 90.0  # the cool-down, and some
End = Callable[[], object]
LINES = (
    "upstream.notice.p50",
    "upstream.notice.max",
    "upstream.notice.lag.max",
    "upstream.switch.p50",
    "upstream.switch.max",
    "upstream.gap.kill",
    "upstream.gap.freeze",
    "upstream.gap.stall",
    "upstream.gap.drain",
)


def _kill(_: Scene, server: DatabaseServer) -> End:
    server.kill()
    return server.start


def _freeze(_: Scene, server: DatabaseServer) -> End:
    server.process.pause()
    return server.process.resume


def _stall(_: Scene, server: DatabaseServer) -> End:
    word = "SLAVE" if server.flavour is Flavour.MARIADB else "REPLICA"
    server.execute(f"STOP {word} SQL_THREAD")

    def end() -> None:
        server.execute(f"START {word} SQL_THREAD")

    return end


def _drain(scene: Scene, server: DatabaseServer) -> End:
    address = f"127.0.0.1:{server.port}"
    scene.stack.run_command("replica", "drain", SOURCE_SET, address)
    return lambda: scene.stack.run_command("replica", "undrain", SOURCE_SET, address)


_EVENTS: Mapping[str, Callable[[Scene, DatabaseServer], End]] = {
    "kill": _kill,
    "freeze": _freeze,
    "stall": _stall,
    "drain": _drain,
}


def upstream_figures(size: Size) -> Iterator[Figure]:
    """All lines, over the switches of ``size.rounds`` rounds."""
    notices: dict[str, list[float]] = {name: [] for name in _EVENTS}
    switches: dict[str, list[SwitchView]] = {name: [] for name in _EVENTS}
    with open_capture(size.flavour, replica_count=2) as scene, _load(scene):
        for _ in range(size.rounds):
            for name in _EVENTS:
                notice_s, switch = _measure(scene, name)
                notices[name].append(notice_s)
                switches[name].append(switch)
                say(f"  {name}: notice {notice_s:.2f} s, switch {switch.switch_s:.2f} s")
    deaths = notices["kill"] + notices["freeze"]
    times = [switch.switch_s for of_event in switches.values() for switch in of_event]
    yield Figure("upstream.notice.p50", median(deaths), "s")
    yield Figure("upstream.notice.max", max(deaths), "s")
    yield Figure("upstream.notice.lag.max", max(notices["stall"]), "s")
    yield Figure("upstream.switch.p50", median(times), "s")
    yield Figure("upstream.switch.max", max(times), "s")
    for name, of_event in switches.items():
        yield Figure(f"upstream.gap.{name}", median(switch.gap_s for switch in of_event), "s")


def _measure(scene: Scene, name: str) -> tuple[float, SwitchView]:
    """The seconds until the event was noticed, and the switch."""
    _wait_for_a_replica(scene)
    if name == "stall":
        _wait_out_cool_down(scene)
    before = _captured(scene)
    server = next(
        member for member in scene.stack.source.members if member.port == before.source.port
    )
    began_s = time.time()
    end = _EVENTS[name](scene, server)
    try:
        switch = _next_switch(scene, before)
        scene.wait_captured()
    finally:
        end()
    scene.stack.source.wait_for_replicas(timeout_s=SWITCH_S_MAX)
    return _seconds_of(switch) - began_s, switch


def _seconds_of(switch: SwitchView) -> float:
    return datetime.fromisoformat(switch.at).timestamp()


def _next_switch(scene: Scene, before: Captured) -> SwitchView:
    deadline = time.monotonic() + SWITCH_S_MAX
    while time.monotonic() < deadline:
        new = [switch for switch in _captured(scene).switches if switch not in before.switches]
        if new:
            return new[0]
        time.sleep(POLL_S)
    raise Fatal("MR-8004", f"{before.source.host}:{before.source.port} was not left")


def _wait_out_cool_down(scene: Scene) -> None:
    """Until lag may cause a switch again: the status does not say which switches lag caused, so all count."""
    last = max((_seconds_of(switch) for switch in _captured(scene).switches), default=0.0)
    while time.time() < last + UpstreamRules().cool_down_s:
        time.sleep(POLL_S)


def _wait_for_a_replica(scene: Scene) -> None:
    deadline = time.monotonic() + SWITCH_S_MAX
    while _captured(scene).source.role != "replica":
        if time.monotonic() > deadline:
            raise Fatal("MR-8004", "no replica is read")
        time.sleep(POLL_S)


def _captured(scene: Scene) -> Captured:
    captured = task_report(scene.session, CAPTURE_TASK).captured
    if captured is None:
        raise Fatal("MR-8004", f"{CAPTURE_TASK} does not run")
    return captured


@contextmanager
def _load(scene: Scene) -> Iterator[None]:
    """``RATE`` one-row transactions a second until the block ends."""
    scene.source.execute(f"CREATE DATABASE {DATABASE}")
    scene.source.execute(f"CREATE TABLE {DATABASE}.beats (beat BIGINT PRIMARY KEY AUTO_INCREMENT)")

    def write(stop: threading.Event) -> None:
        with closing(scene.connect()) as connection:
            cursor = connection.cursor()
            while not stop.wait(1 / RATE):
                cursor.execute(f"INSERT INTO {DATABASE}.beats VALUES ()")
                connection.commit()

    with Background("load", write):
        yield
