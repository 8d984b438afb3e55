"""Damaged events in the kernels of receiver and relay log: they end in a status and stay in bounds."""

import ast
import os
import subprocess
import sys

import pytest

from millrace.producer.binlog import transactions
from millrace.producer.binlog.packets import ARTIFICIAL

EVERY_DAY = {"MILLRACE_KERNEL_CHECKED": ""}
CHECKED = {"MILLRACE_KERNEL_CHECKED": "1"}
UNCOMPILED = {"NUMBA_DISABLE_JIT": "1"}
ROUNDS = 2_000
ROUNDS_UNCOMPILED = 20  # plain Python takes a hundred times as long per round
FOUND_SOON = {
    transactions.OK,
    transactions.BAD_BODY,
    transactions.BAD_LENGTH,
    transactions.BAD_POSITION,
}
FOUND = FOUND_SOON | {
    ARTIFICIAL,
    transactions.GROUP_NOT_ENDED,
    transactions.ROWS_OUTSIDE,
    transactions.NO_CHECKSUM,
    transactions.BAD_CHECKSUM,
}


def _run(*words: str, **mode: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", *words],
        env=os.environ | mode,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, f"{words}: {done.stdout[-3000:]}{done.stderr[-3000:]}"
    return done.stdout


def _fuzzed(seed: int, rounds: int, **mode: str) -> dict[int, int]:
    """The count of each status."""
    counts: dict[int, int] = ast.literal_eval(
        _run("tests.kit.fuzz.relay", f"{seed}", f"{rounds}", **mode)
    )
    assert sum(counts.values()) == 3 * rounds  # walked, scanned, stripped
    return counts


def test_relay_scan_of_damaged_events_stays_in_bounds() -> None:
    """Production machine code between two protected pages: events cut, flipped, with another length, type or place."""
    assert _fuzzed(1, ROUNDS, **EVERY_DAY).keys() >= FOUND


def test_relay_scan_agrees_with_plain_python_on_damaged_events() -> None:
    """Plain Python's arrays check each index; both give the same statuses."""
    uncompiled = _fuzzed(2, ROUNDS_UNCOMPILED, **UNCOMPILED)
    assert uncompiled.keys() >= FOUND_SOON
    assert uncompiled == _fuzzed(2, ROUNDS_UNCOMPILED, **EVERY_DAY)


@pytest.mark.chaos
@pytest.mark.parametrize(
    ("mode", "rounds"),
    [(EVERY_DAY, 60_000), (CHECKED, 60_000), (UNCOMPILED, 2_000)],
    ids=["production", "checked", "uncompiled"],
)
def test_relay_scan_stays_in_bounds_for_minutes(mode: dict[str, str], rounds: int) -> None:
    """The same for longer with a new seed each time, with bounds checks and as plain Python."""
    assert _fuzzed(int.from_bytes(os.urandom(3)), rounds, **mode).keys() >= FOUND


@pytest.mark.chaos
def test_relay_damage_tests_pass_with_bounds_checks() -> None:
    """Runs all tests of damaged relay logs and of packets with bounds checks."""
    files = ("tests/unit/test_relay_damage.py", "tests/unit/test_relay_packets.py")
    _run("pytest", "-q", "-p", "no:cacheprovider", *files, **CHECKED)
