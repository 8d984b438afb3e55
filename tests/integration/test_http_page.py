"""`/metrics`, `/livez` and `/readyz` of a page, of real workers and of a scheduler, on a real ZooKeeper."""

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import pytest

from millrace import http
from millrace.deploy.servers.process import free_port
from millrace.errors import Fatal
from millrace.http import CLIENT_S, LOOPBACK, REQUESTS_MAX, Page, Probes, address_of, open_page
from millrace.schemas import stall
from millrace.schemas.documents import Work
from millrace.schemas.status import TaskState
from millrace.tls import is_loopback
from millrace.zk.run.probes import probes_of
from millrace.zk.run.runner import HeldLease
from millrace.zk.tree import reports
from tests.kit.control.control import ScriptedRunner, a_capture, supervised
from tests.kit.control.page import Scrape, fetched
from tests.kit.control.process import launched
from tests.kit.control.stage import Stage
from tests.kit.waiting import PATIENCE_S, eventually


def _refused(option: str) -> str:
    """Return the code of the error."""
    with pytest.raises(Fatal) as caught, open_page(option):
        pass
    assert "--http" in caught.value.fix
    return caught.value.code


@pytest.mark.parametrize(
    "option", ["9471", "localhost", ":9471", "localhost:", "localhost:65536", "h:-1", "h:٣", "off"]
)
def test_malformed_metrics_address_is_refused(option: str) -> None:
    """Before anything is started."""
    assert _refused(option) == "MR-8020"


def test_port_in_use_is_refused_with_its_code() -> None:
    """Two processes never share a port silently."""
    with open_page(f"{LOOPBACK}:0") as page:
        assert _refused(str(page.address)) == "MR-8009"


def test_processes_of_one_host_coexist_by_default() -> None:
    """Each takes a free port on loopback; `none` takes none."""
    with open_page() as first, open_page() as second, open_page("none") as third:
        assert first.address is not None
        assert second.address is not None
        assert first.address != second.address
        assert is_loopback(first.address.host)
        assert third.address is None


def test_page_listens_on_ipv6() -> None:
    """The address is written in brackets."""
    assert str(address_of("[::1]:0")) == "[::1]:0"
    with open_page("[::1]:0") as page:
        assert fetched(page.address, "/livez") == (200, "ok\n")


def test_page_ends_with_its_block() -> None:
    """The port is free again, and no thread is left."""
    with open_page() as page:
        assert page.address is not None
        port = page.address.port
    assert not [thread for thread in threading.enumerate() if thread.name == "http"]
    with open_page(f"{LOOPBACK}:{port}"):
        pass


def test_probe_answers_503_with_the_reason() -> None:
    """For load balancers and process managers. Other paths are 404."""
    with open_page() as page:
        assert fetched(page.address, "/readyz") == (503, "it starts\n")
        assert fetched(page.address, "/livez") == (200, "ok\n")
        page.wait("for ZooKeeper at zk1:2181")
        assert fetched(page.address, "/readyz") == (
            503,
            "it starts: it waits for ZooKeeper at zk1:2181\n",
        )
        page.show(Probes(hung=lambda: "the loop hangs"))
        assert fetched(page.address, "/readyz") == (200, "ok\n")
        assert fetched(page.address, "/livez") == (503, "the loop hangs\n")
        assert Scrape(page.address).value("millrace_live") == 0
        assert fetched(page.address, "/")[0] == 404


def _drip(connection: socket.socket, content: bytes, ends: threading.Event) -> None:
    """Send a byte now and then, so that no single wait for the client is long."""
    with suppress(OSError):  # the page has cut it
        for byte in content * 1000:
            connection.sendall(bytes([byte]))
            if ends.wait(0.05):
                return


@contextmanager
def _slow_clients(page: Page, count: int, content: bytes) -> Iterator[list[socket.socket]]:
    """Clients that send this endlessly, byte by byte; closed after the block."""
    assert page.address is not None
    at = (page.address.host, page.address.port)
    ends = threading.Event()
    clients = [socket.create_connection(at) for _ in range(count)]
    threads = [threading.Thread(target=_drip, args=(one, content, ends)) for one in clients]
    for thread in threads:
        thread.start()
    try:
        yield clients
    finally:
        ends.set()
        for client in clients:
            client.close()
        for thread in threads:
            thread.join()


@pytest.mark.parametrize(
    ("count", "content"),
    [
        (1, b""),
        (REQUESTS_MAX, b""),
        (REQUESTS_MAX, b"GET /livez"),
        (REQUESTS_MAX, b"GET /livez HTTP/1.1\r\nA: b\r\nC: d"),
        (2 * REQUESTS_MAX, b"x"),
    ],
)
def test_slow_clients_keep_no_probe_out(count: int, content: bytes) -> None:
    """They send nothing, or a byte now and then: without a limit, in the first line or the headers."""
    with open_page() as page, _slow_clients(page, count, content):
        for _ in range(3):
            assert fetched(page.address, "/livez") == (200, "ok\n")


def test_slow_clients_do_not_delay_the_end() -> None:
    """The page ends while all places are taken and another client waits."""
    with ExitStack() as clients:
        with open_page() as page:
            clients.enter_context(_slow_clients(page, REQUESTS_MAX + 1, b"GET /"))
            begun_s = time.monotonic()
        assert time.monotonic() - begun_s < CLIENT_S / 4


def test_connection_ends_when_its_time_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also if the client keeps sending, and there is room for more."""
    monkeypatch.setattr(http, "CLIENT_S", 0.5)
    with open_page() as page, _slow_clients(page, 1, b"GET /") as (client,):
        client.settimeout(PATIENCE_S)
        with suppress(ConnectionResetError):
            assert client.recv(1) == b""


def _hang(_task: Work, _lease: HeldLease, stop: threading.Event) -> None:
    stop.wait()


def _fail(_task: Work, _lease: HeldLease, _stop: threading.Event) -> None:
    raise Fatal("MR-3005", "not permitted")


def test_worker_shows_its_tasks_as_status_does(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A blocked task, and one whose thread hangs while its report says RUNNING."""
    monkeypatch.setattr(reports, "REPEAT_S", 0.2)
    monkeypatch.setattr(stall, "STALL_S", 1.0)
    stage.scheduler()
    stage.store.create_task(a_capture("broken"))
    stage.store.create_task(a_capture("hanging"))
    runner = ScriptedRunner(
        lambda task, lease, stop: (_fail if task.name == "broken" else _hang)(task, lease, stop)
    )
    session = stage.new_session()
    with open_page() as page, supervised(session, stage.tree, runner) as supervisor:
        page.show(probes_of(supervisor, session, read_reports=supervisor.reports))

        def value(name: str, **labels: str) -> float | None:
            return Scrape(page.address).value(name, **labels)

        eventually(lambda: value("millrace_blocked", task="broken", code="MR-3005") == 1)
        eventually(lambda: value("millrace_state", task="hanging", state="stalled") == 1)
        stage.reaches("hanging", TaskState.STALLED)
        found = Scrape(page.address)
        assert found.value("millrace_state", task="broken", state="blocked") == 1
        assert found.value("millrace_epoch", task="hanging") == stage.report("hanging").epoch
        assert found.value("millrace_zookeeper_connected") == 1
        assert (found.value("millrace_task_failures_total", code="MR-3005") or 0) >= 1
        assert fetched(page.address, "/readyz") == (200, "ok\n")
        assert fetched(page.address, "/livez") == (200, "ok\n")


def test_second_worker_of_a_name_is_not_ready(stage: Stage) -> None:
    """It is alive, and names the reason."""
    first, second = stage.new_session(), stage.new_session()
    with supervised(first, stage.tree, ScriptedRunner()) as known:
        eventually(lambda: known.unready == "")
        with supervised(second, stage.tree, ScriptedRunner()) as late:
            eventually(lambda: "MR-4009" in late.unready)
            assert probes_of(late, second).hung() == ""


class _Blocking:
    """A store that answers no call."""

    def __init__(self) -> None:
        self.is_open = threading.Event()

    def wait(self, *_: object, **__: object) -> tuple[str, ...]:
        self.is_open.wait()
        return ()


def test_hung_loop_fails_the_liveness_probe(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its round never returns: the age grows past the limit, and the page still answers."""
    session = stage.new_session()
    door = _Blocking()
    page = Page()
    with supervised(session, stage.tree, ScriptedRunner()) as supervisor:
        probes = probes_of(supervisor, session)
        page.show(probes)
        eventually(lambda: supervisor.unready == "")
        monkeypatch.setattr(session, "children", door.wait)
        monkeypatch.setattr("millrace.zk.run.probes.HUNG_S_MIN", 0.5)
        monkeypatch.setattr("millrace.zk.run.probes.HUNG_TIMEOUTS", 0)
        stage.store.create_task(a_capture())  # wakes the loop, which lists the tasks
        try:
            eventually(lambda: "loop of the supervisor" in probes.hung())
        finally:
            door.is_open.set()


def test_scheduler_shows_whether_it_leads(stage: Stage, tmp_path: Path) -> None:
    """The other one waits to lead; both are ready. The leader counts tasks without a worker."""
    stage.store.create_task(a_capture())
    places = [f"{LOOPBACK}:{free_port()}" for _ in range(2)]
    with (
        launched(
            stage.ensemble, "scheduler", name="s0", folder=tmp_path, environment=_at(places[0])
        ),
        launched(
            stage.ensemble, "scheduler", name="s1", folder=tmp_path, environment=_at(places[1])
        ),
    ):
        eventually(lambda: all(_is_ready(place) for place in places))

        def value(name: str) -> list[float]:
            return sorted(Scrape(place).value(name) or 0 for place in places)

        eventually(lambda: value("millrace_scheduler_leading") == [0, 1])
        eventually(lambda: value("millrace_scheduler_pending_tasks") == [0, 1])
        assert value("millrace_scheduler_tasks") == [0, 1]
        assert min(value("millrace_zookeeper_connected")) == 1
        with supervised(stage.new_session(), stage.tree, ScriptedRunner()):
            eventually(lambda: value("millrace_scheduler_assignments_total") == [0, 1])
            eventually(lambda: value("millrace_scheduler_pending_tasks") == [0, 0])


def _at(place: str) -> dict[str, str]:
    return {"MILLRACE_HTTP": place}


def _is_ready(place: str) -> bool:
    try:
        return fetched(place, "/readyz")[0] == 200
    except OSError:
        return False  # it starts
