"""Make the archives of class data of the local broker and ZooKeeper (`millrace/java.py`), where there are none."""

import os
from pathlib import Path
from tempfile import TemporaryDirectory

from deploy.servers import kafka, zookeeper
from deploy.servers.server import Server
from millrace.java import ClassData

_ENVIRONMENT = "JDK_JAVA_OPTIONS"  # read by the `java` command


def main() -> None:
    """Start each once and stop it in order."""
    with TemporaryDirectory() as folder:
        _make(kafka.class_data(), kafka.KafkaServer(Path(folder, "kafka")))
        _make(zookeeper.class_data(), zookeeper.ZooKeeperServer(Path(folder, "zookeeper")))


def _make(wanted: ClassData, server: Server) -> None:
    if wanted.path.exists():
        return
    with wanted.making() as options:
        os.environ[_ENVIRONMENT] = " ".join(options)
        server.start()
        server.stop()


if __name__ == "__main__":
    main()
