"""Damaged binlogs of real servers through the kernel, every memory access checked: records or a code, nothing else."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from deploy.servers import DatabaseServer
from tests.binlog_session import logged
from tests.fix_servers import FLAVOURS
from tests.integration.test_converter_servers import COMPRESSION
from tests.type_values import CASES

ROUNDS = 400  # compiled; as plain Python a round takes a hundred times as long
ROUNDS_UNCOMPILED = 15


@pytest.fixture(params=FLAVOURS, ids=str)
def server(request: pytest.FixtureRequest) -> DatabaseServer:
    """A single server of each flavour."""
    found = request.getfixturevalue(f"{request.param}_server")
    assert isinstance(found, DatabaseServer)
    return found


def _binlogs(server: DatabaseServer, folder: Path) -> list[Path]:
    """Every type, compressed and not."""
    switch_on, switch_off = COMPRESSION[server.flavour]
    files = []
    for database, before, after in (("fuzz_plain", (), ()), ("fuzz_small", switch_on, switch_off)):
        with logged(server, database) as source:
            source.run(*before)
            for number, case in enumerate(c for c in CASES if server.flavour in c.flavours):
                source.run(f"CREATE TABLE t{number} (id INT PRIMARY KEY, v {case.ddl})")
                for place, value in enumerate((*case.values[:3], "NULL"), 1):
                    source.run(f"INSERT INTO t{number} VALUES ({place}, {value})")
            source.run(*after)
            source.conversion()
            content = (server.binlog_dir / source.file).read_bytes()
        files.append(folder / database)
        files[-1].write_bytes(content)
    return files


def _fuzzed(server: DatabaseServer, files: list[Path], rounds: int, seed: int, **mode: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.kernel_fuzz", f"{seed}", f"{rounds}", server.flavour, *files],
        env={**os.environ, **mode},
        capture_output=True,
        text=True,
        timeout=1800,
        check=False,
    )
    assert done.returncode == 0, f"seed {seed}: {done.stderr[-3000:]}"
    assert "MR-6003" in done.stdout


def test_damage_ends_in_a_code_and_touches_no_foreign_memory(
    server: DatabaseServer, tmp_path: Path
) -> None:
    """Every type, compressed and not: an access beyond an array would end the run, and so would a missing place.

    As plain Python also one in front of an array of numbers; each run proves first that it would see one.
    """
    files = _binlogs(server, tmp_path)
    _fuzzed(server, files, ROUNDS, 7, MILLRACE_KERNEL_CHECKED="1")
    _fuzzed(server, files, ROUNDS_UNCOMPILED, 8, NUMBA_DISABLE_JIT="1")


@pytest.mark.chaos
@pytest.mark.parametrize(
    ("mode", "rounds"),
    [("MILLRACE_KERNEL_CHECKED", 20_000), ("NUMBA_DISABLE_JIT", 200)],
    ids=["checked", "uncompiled"],
)
def test_much_damage_ends_in_a_code_and_touches_no_foreign_memory(
    server: DatabaseServer, tmp_path: Path, mode: str, rounds: int
) -> None:
    """The same for minutes, by another seed each time; and as plain Python, whose arrays check their indexes."""
    seed = int.from_bytes(os.urandom(3))
    _fuzzed(server, _binlogs(server, tmp_path), rounds, seed, **{mode: "1"})
