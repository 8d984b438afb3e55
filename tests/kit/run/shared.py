"""One broker, one ZooKeeper and one schema registry for all lanes of a run, owned by the runner.

The runner starts them, if a file uses them, and gives their addresses to the lanes in ``SHARED_SERVERS``. The fixtures
``kafka``, ``zookeeper`` and ``registry`` use these, or start their own in a pytest without the runner. Topics,
transactional IDs and clusters are therefore unique in a whole run. A test that kills, freezes or secures a server has
its own. The kernel kills all three when the runner ends.
"""

import json
import os
import sys
from collections.abc import Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TypeVar

from millrace.deploy.servers import KafkaServer, ZooKeeperServer
from millrace.deploy.servers.process import ProcessSpec, ServerProcess

SHARED_SERVERS = "MILLRACE_TEST_SERVERS"  # in the environment of a lane, as JSON
KAFKA, ZOOKEEPER, REGISTRY = SHARED_NAMES = ("kafka", "zookeeper", "registry")
READY_S = 120.0
SESSION_S = 60  # no test kills this broker, and a busy machine must not take its partitions away

S = TypeVar("S", KafkaServer, ZooKeeperServer)


@contextmanager
def shared_servers(folder: Path, names: Collection[str]) -> Iterator[None]:
    """Starts the servers with these names; they end with the block. The registry needs the broker."""
    with ExitStack() as ends:
        addresses: dict[str, Mapping[str, str]] = {}
        servers: dict[str, KafkaServer | ZooKeeperServer] = {}
        if KAFKA in names or REGISTRY in names:
            servers[KAFKA] = KafkaServer(folder / KAFKA, session_s=SESSION_S)
        if ZOOKEEPER in names:
            servers[ZOOKEEPER] = ZooKeeperServer(folder / ZOOKEEPER)
        for name, server in servers.items():
            server.launch()
            ends.callback(server.kill)
            addresses[name] = {"folder": str(server.folder), "port": str(server.port)}
        for server in servers.values():
            server.wait_ready()
        if REGISTRY in names:
            bootstrap = f"127.0.0.1:{servers[KAFKA].port}"
            url = ends.enter_context(running_registry(folder / REGISTRY, bootstrap))
            addresses[REGISTRY] = {"url": url}
        os.environ[SHARED_SERVERS] = json.dumps(addresses)
        try:
            yield
        finally:
            del os.environ[SHARED_SERVERS]


@contextmanager
def running_registry(folder: Path, bootstrap: str) -> Iterator[str]:
    """The URL of a registry over this broker. The kernel kills it when this process ends."""
    command = (sys.executable, "-m", "millrace", "registry", "--kafka", bootstrap)
    process = ServerProcess(ProcessSpec("the registry", (*command, "--port", "0"), folder / "log"))
    process.launch()
    try:
        process.wait_ready(lambda: _printed_url(process) != "", timeout_s=READY_S)
        yield _printed_url(process)
    finally:
        process.stop()


def _printed_url(process: ServerProcess) -> str:
    for line in process.spec.log.read_text().splitlines():
        if line.startswith('{"registry"') and line.endswith("}"):
            return str(json.loads(line)["registry"])
    return ""


def shared_kafka() -> KafkaServer | None:
    """The broker of the run; None without the runner. It has an address and a folder, but no process here."""
    return _elsewhere(KafkaServer, KAFKA)


def shared_zookeeper() -> ZooKeeperServer | None:
    """The ZooKeeper of the run; None without the runner. It has an address, but no process here."""
    return _elsewhere(ZooKeeperServer, ZOOKEEPER)


def _elsewhere(kind: type[S], name: str) -> S | None:
    place = _addresses().get(name)
    if place is None:
        return None
    return kind(Path(place["folder"]), port=int(place["port"]), java_options=())


def shared_registry() -> str:
    """The URL of the registry of the run; empty without the runner."""
    return _addresses().get(REGISTRY, {}).get("url", "")


def _addresses() -> Mapping[str, Mapping[str, str]]:
    addresses: Mapping[str, Mapping[str, str]] = json.loads(os.environ.get(SHARED_SERVERS, "{}"))
    return addresses
