"""Relay files: written as the receiver writes them, or placed as a crash left them."""

from pathlib import Path

import numpy as np

from millrace.producer.binlog.gtid_runs import new_runs
from millrace.producer.relay.writer import RelayLog
from tests.kit.binlog.plain_files import BinlogFile

NAME = "mysql-bin.000001"


def write_file(relay: RelayLog, name: str, file: BinlogFile, *, end: int | None = None) -> None:
    """Write a file as the receiver does, in one piece; GTIDs are read from the file later."""
    relay.begin_file(name)
    grow_file(relay, file.data[4:], end=len(file.data) if end is None else end)


def grow_file(relay: RelayLog, payload: bytes, *, end: int) -> None:
    """Append bytes."""
    relay.append(np.frombuffer(payload, np.uint8), end=end, last_group_at=0, runs=new_runs()[:0])


def lay_file(root: Path, file: bytes, *, name: str = NAME, subdir: str = "server-a.000001") -> Path:
    """Place a file as a crash left it."""
    (root / subdir).mkdir(parents=True, exist_ok=True)
    (root / subdir / name).write_bytes(file)
    return root / subdir / name
