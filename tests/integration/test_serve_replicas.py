"""Real replicas attach to a served relay log and equal the source."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from millrace.deploy.servers import DatabaseServer, ServerOptions
from millrace.schemas.gtid import Flavour
from tests.fixtures.servers import SMALL, NewServer, in_turn
from tests.kit.relay.relay import flush_and_wait, receiving, run_mixed_workload
from tests.kit.relay.serving import (
    SET_NAME,
    checksums,
    follow,
    options_in,
    served,
    wait_caught_up,
)

TABLES = ("d.t", "d.m", "d.load")
LOAD_PAUSE_S = 0.01


@contextmanager
def load_on(server: DatabaseServer) -> Iterator[None]:
    """One-row transactions until the block ends."""
    stop = threading.Event()

    def write() -> None:
        number = 0
        while not stop.is_set():
            number += 1
            server.execute(f"INSERT INTO d.load VALUES ({number}, REPEAT('v', 300))")
            stop.wait(LOAD_PAUSE_S)

    server.execute("CREATE TABLE d.load (id INT PRIMARY KEY, v VARCHAR(300))")
    thread = threading.Thread(target=write)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


# the flavours in the other order than in tests/fault/test_serve_switch.py
@in_turn("by", {"position": "position", "gtid": "gtid"})
@pytest.mark.guarantee("served relay log")
def test_replica_of_the_relay_log_equals_the_source(
    flavour: Flavour, by: str, new_server: NewServer, tmp_path: Path
) -> None:
    """Under load, over several files, from the first transaction on."""
    source = new_server(flavour, options=ServerOptions(server_id=1, extra=SMALL[flavour]))
    replica = new_server(flavour, options=ServerOptions(server_id=7, extra=SMALL[flavour]))
    with receiving(source, tmp_path / SET_NAME, from_first=True) as reception:
        run_mixed_workload(source, "d")
        reception.wait_for(source)
        with served(tmp_path / SET_NAME, options_in(tmp_path)) as address, load_on(source):
            file = "mysql-bin-000001.000001" if by == "position" else ""
            follow(replica, address, file=file)
            wait_caught_up(replica, source)
            flush_and_wait(source, reception)
            wait_caught_up(replica, source)
            source.execute("UPDATE d.t SET a = CONCAT(a, '?')")
        with served(tmp_path / SET_NAME, options_in(tmp_path, port=address.port)):
            wait_caught_up(replica, source)
            assert checksums(replica, *TABLES) == checksums(source, *TABLES)
