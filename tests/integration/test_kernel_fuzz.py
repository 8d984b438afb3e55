"""Damaged binlogs of real servers in the kernel, with every memory access checked: only records or an error code."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from millrace.deploy.servers import DatabaseServer
from millrace.producer.binlog.events import CHECKSUM_BYTES, HEADER_BYTES
from millrace.schemas.byte_reader import ByteReader
from millrace.schemas.gtid import Flavour
from tests.kit.binlog.compression import COMPRESSION
from tests.kit.binlog.session import logged
from tests.kit.fuzz.kernel import event_starts, size_of
from tests.kit.type_values import CASES, JSON_VALUES

ROUNDS = 400  # compiled; plain Python takes a hundred times as long per round
ROUNDS_UNCOMPILED = 15
JSON_ROUNDS = 4_000  # for each document
WRITE_ROWS = 30
MODES = {
    "production": {"MILLRACE_KERNEL_CHECKED": ""},
    "checked": {"MILLRACE_KERNEL_CHECKED": "1"},
    "uncompiled": {"NUMBA_DISABLE_JIT": "1"},
}


def _binlogs(server: DatabaseServer, folder: Path) -> list[Path]:
    """Binlogs with every type, compressed and uncompressed, and a file with every kind of MySQL's JSON."""
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
    return files if server.flavour is Flavour.MARIADB else [*files, _json_binlog(server, folder)]


def _json_binlog(server: DatabaseServer, folder: Path) -> Path:
    """A source transaction for each of ``JSON_VALUES``: small, large, nested and opaque values and every scalar."""
    with logged(server, "fuzz_json") as source:
        source.run("CREATE TABLE t (id INT PRIMARY KEY, v JSON)")
        for place, value in enumerate(JSON_VALUES, 1):
            source.run(f"INSERT INTO t VALUES ({place}, {value})")
        source.conversion()
        content = (server.binlog_dir / source.file).read_bytes()
    (folder / "fuzz_json").write_bytes(content)
    return folder / "fuzz_json"


def _json_documents(content: bytes) -> list[bytes]:
    """The bytes of ``v`` in each row of ``_json_binlog``."""
    documents = []
    for start in event_starts(content):
        if content[start + 4] == WRITE_ROWS:
            end = start + size_of(content, start) - CHECKSUM_BYTES
            reader = ByteReader(content[start + HEADER_BYTES + 8 : end], "rows")
            reader.take(reader.uint(2) - 2)  # extra data
            reader.take(1 + 1 + 1 + 4)  # width, columns present, NULLs, id
            documents.append(reader.take(reader.uint(4)))
            reader.end()
    assert len(documents) == len(JSON_VALUES)
    return documents


def _fuzzed(server: DatabaseServer, files: list[Path], rounds: int, seed: int, **mode: str) -> None:
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "tests.kit.fuzz.kernel",
            f"{seed}",
            f"{rounds}",
            server.flavour,
            *files,
        ],
        env={**os.environ, **mode},
        capture_output=True,
        text=True,
        timeout=1800,
        check=False,
    )
    assert done.returncode == 0, f"seed {seed}: {done.stderr[-3000:]}"
    assert "MR-6003" in done.stdout


@pytest.mark.guarantee("robust")
def test_damaged_events_end_in_a_code_without_stray_access(
    server: DatabaseServer, tmp_path: Path
) -> None:
    """Plain Python on every type and form of JSON: an access outside an array ends the run.

    Each run first proves that it would detect such an access.
    """
    _fuzzed(server, _binlogs(server, tmp_path), ROUNDS_UNCOMPILED, 8, NUMBA_DISABLE_JIT="1")


@pytest.mark.chaos  # compiling the kernels with checks takes a minute
def test_compiled_kernels_stay_in_bounds_on_damaged_events(
    server: DatabaseServer, tmp_path: Path
) -> None:
    """The same with kernels compiled with bounds checks."""
    _fuzzed(server, _binlogs(server, tmp_path), ROUNDS, 7, MILLRACE_KERNEL_CHECKED="1")


def _json_fuzzed(server: DatabaseServer, folder: Path, mode: str, rounds: int, seed: int) -> None:
    documents = folder / "documents"
    binlog = _json_binlog(server, folder).read_bytes()
    documents.write_text("\n".join(each.hex() for each in _json_documents(binlog)))
    done = subprocess.run(
        [sys.executable, "-m", "tests.kit.fuzz.json", f"{seed}", f"{rounds}", documents],
        env={**os.environ, **MODES[mode]},
        capture_output=True,
        text=True,
        timeout=1800,
        check=False,
    )
    assert done.returncode == 0, f"seed {seed}: {done.returncode} {done.stderr[-3000:]}"
    assert all(outcome in done.stdout for outcome in ("a document", "BROKEN", "FULL"))


def test_damaged_json_never_reads_out_of_bounds(
    mysql_server: DatabaseServer, tmp_path: Path
) -> None:
    """Scalars, small and large objects and arrays, opaque, nested: no access outside document, room or stack."""
    _json_fuzzed(mysql_server, tmp_path, "production", JSON_ROUNDS, 9)


@pytest.mark.chaos
@pytest.mark.parametrize(
    ("mode", "rounds"), [("production", 400_000), ("checked", 400_000), ("uncompiled", 4_000)]
)
def test_damaged_json_never_reads_out_of_bounds_for_minutes(
    mysql_server: DatabaseServer, tmp_path: Path, mode: str, rounds: int
) -> None:
    """The same for minutes with a new seed each time, also with bounds checks and as plain Python."""
    _json_fuzzed(mysql_server, tmp_path, mode, rounds, int.from_bytes(os.urandom(3)))


@pytest.mark.chaos
@pytest.mark.parametrize(
    ("mode", "rounds"),
    [("MILLRACE_KERNEL_CHECKED", 20_000), ("NUMBA_DISABLE_JIT", 200)],
    ids=["checked", "uncompiled"],
)
def test_damaged_events_end_in_a_code_for_minutes(
    server: DatabaseServer, tmp_path: Path, mode: str, rounds: int
) -> None:
    """The same for minutes with a new seed each time, compiled with bounds checks and as plain Python."""
    seed = int.from_bytes(os.urandom(3))
    _fuzzed(server, _binlogs(server, tmp_path), rounds, seed, **{mode: "1"})
