"""The jars of the peer, in the home folder: fetched when it runs for the first time.

$MILLRACE_HOME/jars/connect/          Kafka Connect
$MILLRACE_HOME/jars/debezium-jdbc/    the connector as it was fetched, and unpacked in plugin/
"""

import sys
import tarfile
from contextlib import redirect_stdout
from dataclasses import dataclass
from pathlib import Path

from deploy.servers.fetch import fetch_jars

IVY_FILE = Path(__file__).with_name("ivy.xml")


@dataclass(frozen=True, slots=True)
class SinkJars:
    """``classpath`` is Kafka Connect's. ``plugins`` is the folder that holds the connector's folder."""

    classpath: str
    plugins: Path


def fetch_sink() -> SinkJars:
    """Fetch what is missing, with progress on standard error. Fatal MR-8003 if a download fails."""
    with redirect_stdout(sys.stderr):
        connect = fetch_connect()
        fetched = fetch_jars("debezium-jdbc", size_mb=53, ivy_file=IVY_FILE, finish=unpack)
    return SinkJars(str(connect / "*"), fetched / "plugin")


def fetch_connect() -> Path:
    """Fetch Kafka Connect if it is missing. Returns the folder of its jars."""
    return fetch_jars("connect", size_mb=33, ivy_file=IVY_FILE)


def unpack(folder: Path) -> None:
    """Unpack a connector as it was fetched into ``plugin``."""
    (packed,) = folder.glob("*.tar.gz")
    with tarfile.open(packed) as archive:
        archive.extractall(folder / "plugin", filter="data")
    packed.unlink()
