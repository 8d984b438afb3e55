"""Real servers as fixtures. A server that can't be started fails the test; none is skipped silently.

Session scope, shared (make databases and topics of your own in them): ``source_set``, ``target_server`` (each flavour
in turn), ``single_server`` (MySQL's turn comes in chaos), ``mariadb_server``, ``mysql_server``, ``kafka``,
``zookeeper``, ``registry``, ``mysqlbinlog``. To break servers, make your own with ``new_set``, ``new_server``,
``new_kafka``, ``new_zookeeper``: they end with the test.

Where there is no MySQL, its half of the tests is left out and the run says so, first and last.
"""

import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from itertools import count
from pathlib import Path

import pytest

from deploy.servers import (
    Account,
    DatabaseServer,
    DatabaseSet,
    KafkaServer,
    ServerOptions,
    ZooKeeperServer,
    start_set,
)
from deploy.servers.programs import mysql_programs
from schemas.gtid import Flavour

FLAVOURS = [Flavour.MARIADB, *([Flavour.MYSQL] if mysql_programs() is not None else [])]
SERVICE = Account("millrace", "millrace-secret")
TARGET_PRIVILEGES = "ALL PRIVILEGES"

NewSet = Callable[..., DatabaseSet]
NewServer = Callable[..., DatabaseServer]
_names = count(1)


@pytest.fixture(scope="session")
def servers_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Where the session's servers keep their data; gone at the end."""
    folder = tmp_path_factory.mktemp("servers")
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session", params=FLAVOURS, ids=str)
def source_set(request: pytest.FixtureRequest, servers_folder: Path) -> Iterator[DatabaseSet]:
    """A primary and two replicas; ``user`` may replicate and read, no more."""
    made = start_set(
        servers_folder / f"source-{request.param}", flavour=request.param, account=SERVICE
    )
    yield made
    made.discard()


@pytest.fixture(scope="session", params=FLAVOURS, ids=str)
def target_server(request: pytest.FixtureRequest, servers_folder: Path) -> Iterator[DatabaseServer]:
    """A single server; ``user`` may do everything."""
    yield from _single(request.param, servers_folder / f"target-{request.param}", server_id=101)


@pytest.fixture(scope="session")
def mariadb_server(servers_folder: Path) -> Iterator[DatabaseServer]:
    """A single MariaDB; ``user`` may do everything."""
    yield from _single(Flavour.MARIADB, servers_folder / "mariadb", server_id=201)


@pytest.fixture(scope="session")
def mysql_server(servers_folder: Path) -> Iterator[DatabaseServer]:
    """A single MySQL; ``user`` may do everything."""
    yield from _single(Flavour.MYSQL, servers_folder / "mysql", server_id=202)


@pytest.fixture(
    scope="session",
    params=[
        pytest.param(each, marks=() if each is Flavour.MARIADB else pytest.mark.chaos)
        for each in FLAVOURS
    ],
    ids=str,
)
def single_server(request: pytest.FixtureRequest) -> DatabaseServer:
    """``mariadb_server``; with ``--chaos`` ``mysql_server``, too."""
    server: DatabaseServer = request.getfixturevalue(f"{request.param}_server")
    return server


@pytest.fixture(scope="session")
def kafka(servers_folder: Path) -> Iterator[KafkaServer]:
    """A broker; topics are made explicitly."""
    server = KafkaServer(servers_folder / "kafka")
    server.start()
    yield server
    server.kill()


@pytest.fixture(scope="session")
def zookeeper(servers_folder: Path) -> Iterator[ZooKeeperServer]:
    """A ZooKeeper; use a cluster name of your own in it."""
    server = ZooKeeperServer(servers_folder / "zookeeper")
    server.start()
    yield server
    server.kill()


@pytest.fixture(scope="session")
def registry(kafka: KafkaServer) -> Iterator[str]:
    """The URL of a schema registry over the shared broker."""
    command = (sys.executable, "-m", "millrace", "registry", "--kafka", kafka.bootstrap)
    with subprocess.Popen((*command, "--port", "0"), stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield json.loads(process.stdout.readline())["registry"]
        finally:
            process.terminate()


@pytest.fixture(scope="session")
def mysqlbinlog() -> Path:
    """MySQL's own reader of binlog files."""
    programs = mysql_programs()
    assert programs is not None, "no MySQL"
    assert programs.mysqlbinlog is not None, "no mysqlbinlog beside mysqld nor in the cache"
    return programs.mysqlbinlog


@pytest.fixture
def new_set(tmp_path: Path) -> Iterator[NewSet]:
    """Makes sets of this test's own: ``new_set(flavour, replica_count=1, options=ServerOptions(…))``."""
    with ExitStack() as made:

        def make(
            flavour: str, *, replica_count: int = 1, options: ServerOptions | None = None
        ) -> DatabaseSet:
            folder = tmp_path / f"set-{flavour}-{len(list(tmp_path.iterdir()))}"
            new = start_set(
                folder,
                flavour=flavour,
                replica_count=replica_count,
                account=SERVICE,
                options=options,
            )
            made.callback(new.discard)
            return new

        yield make


@pytest.fixture
def new_server(tmp_path: Path) -> Iterator[NewServer]:
    """Makes single servers of this test's own: ``new_server(flavour, options=ServerOptions(…))``."""
    with ExitStack() as made:

        def make(flavour: str, *, options: ServerOptions | None = None) -> DatabaseServer:
            folder = tmp_path / f"server-{flavour}-{len(list(tmp_path.iterdir()))}"
            server = DatabaseServer.of(flavour, folder, options)
            made.callback(server.discard)
            server.start()
            server.create_account(SERVICE, TARGET_PRIVILEGES)
            return server

        yield make


@pytest.fixture
def new_kafka(tmp_path: Path) -> Iterator[KafkaServer]:
    """A broker of this test's own."""
    server = KafkaServer(tmp_path / "kafka")
    server.start()
    yield server
    server.kill()


@pytest.fixture
def new_zookeeper(tmp_path: Path) -> Iterator[ZooKeeperServer]:
    """A ZooKeeper of this test's own."""
    server = ZooKeeperServer(tmp_path / "zookeeper")
    server.start()
    yield server
    server.kill()


def _single(flavour: Flavour, folder: Path, *, server_id: int) -> Iterator[DatabaseServer]:
    server = DatabaseServer.of(flavour, folder, ServerOptions(server_id=server_id))
    server.start()
    server.create_account(SERVICE, TARGET_PRIVILEGES)
    yield server
    server.discard()


@pytest.fixture
def name(target_server: DatabaseServer) -> Iterator[str]:
    """A database and a task of this name on the target, both gone behind the test."""
    made = f"apply{next(_names)}"
    target_server.execute(f"CREATE DATABASE {made} DEFAULT CHARSET utf8mb4")
    yield made
    target_server.execute(f"DROP DATABASE IF EXISTS {made}")
