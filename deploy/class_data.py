"""Make the archives of class data of the local broker and ZooKeeper (`millrace/java.py`), where there are none."""

import sys
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from deploy.servers import KafkaServer, ZooKeeperServer, kafka, zookeeper
from deploy.servers.server import Server
from millrace.errors import Fatal
from millrace.java import ORDERLY


def main() -> None:
    """Each starts once and is stopped in order. Without the archives they only start later."""
    try:
        kafka.class_data().make(_run_broker)
        zookeeper.class_data().make(_run_zookeeper)
    except Exception as error:  # noqa: BLE001 - whatever it is, nothing stands on it
        print(f"no archive of the servers' class data, they start slower: {error}", file=sys.stderr)


def _run_broker(options: Sequence[str]) -> None:
    with TemporaryDirectory() as folder:
        _run(KafkaServer(Path(folder, "kafka"), java_options=options))


def _run_zookeeper(options: Sequence[str]) -> None:
    with TemporaryDirectory() as folder:
        _run(ZooKeeperServer(Path(folder, "zookeeper"), java_options=options))


def _run(server: Server) -> None:
    server.start()
    server.stop()
    if server.process.exit_status not in ORDERLY:
        raise Fatal("MR-8004", f"a server ended with {server.process.exit_status}")


if __name__ == "__main__":
    main()
