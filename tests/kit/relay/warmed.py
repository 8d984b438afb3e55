"""Imported by the server process of ``tests/kit/forked.py``: its forks have the kernels loaded.

Loading takes each process that runs them a third of a second of CPU time.
"""

import tempfile
from pathlib import Path

from millrace import log
from tests.kit.binlog.plain_files import BinlogFile
from tests.kit.relay.process import main


def _run_once() -> None:
    file = BinlogFile()
    file.transaction(ending="xid")
    with tempfile.TemporaryDirectory(prefix="millrace-warm-") as name:
        path = Path(name, "mysql-bin.000001")
        path.write_bytes(file.data)
        main(Path(name, "relay"), [path])


log.configure(json=True, level="error")
_run_once()
