"""Makes the JVM archives of the local broker and ZooKeeper (`millrace/jvm.py`) unless they exist."""

import sys
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from millrace.deploy.servers import KafkaServer, ZooKeeperServer, kafka, zookeeper
from millrace.deploy.servers.server import Server
from millrace.errors import Fatal
from millrace.jvm import CLEAN_EXITS


def main() -> None:
    """Start and stop each server once. Without the archives, servers only start more slowly."""
    try:
        kafka.jvm_archive().make(_run_broker)
        zookeeper.jvm_archive().make(_run_zookeeper)
    except Exception as error:  # noqa: BLE001 - the archives only save time
        print(f"no JVM archives for the servers, they start more slowly: {error}", file=sys.stderr)


def _run_broker(options: Sequence[str]) -> None:
    with TemporaryDirectory() as folder:
        _run(KafkaServer(Path(folder, "kafka"), java_options=options))


def _run_zookeeper(options: Sequence[str]) -> None:
    with TemporaryDirectory() as folder:
        _run(ZooKeeperServer(Path(folder, "zookeeper"), java_options=options))


def _run(server: Server) -> None:
    server.start()
    server.stop()
    if server.process.exit_status not in CLEAN_EXITS:
        raise Fatal("MR-8004", f"a server ended with {server.process.exit_status}")


if __name__ == "__main__":
    main()
