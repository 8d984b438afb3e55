"""Damaged events through the kernels of receiver and relay log: a status, and no foreign memory."""

import os
import subprocess
import sys

import pytest

CHECKED = {"MILLRACE_KERNEL_CHECKED": "1"}
EVERY_DAY = {"MILLRACE_KERNEL_CHECKED": ""}


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


def test_damaged_events_end_in_a_status_and_touch_no_foreign_memory() -> None:
    """The machine code of every day, between two forbidden pages: cut, flipped, of another length, type or place."""
    _run("tests.relay_fuzz", "1", "2000", **EVERY_DAY)


@pytest.mark.chaos
@pytest.mark.parametrize("mode", [EVERY_DAY, CHECKED], ids=["every day", "checked"])
def test_many_damaged_events_end_in_a_status_and_touch_no_foreign_memory(
    mode: dict[str, str],
) -> None:
    """The same for longer, by another seed each time; and with every index compared."""
    _run("tests.relay_fuzz", str(int.from_bytes(os.urandom(3))), "60000", **mode)


@pytest.mark.chaos
def test_flipped_bits_and_lies_are_found_with_every_index_compared() -> None:
    """All of the tests of damaged relay logs and of packets."""
    files = ("tests/unit/test_relay_damage.py", "tests/unit/test_relay_packets.py")
    _run("pytest", "-q", "-p", "no:cacheprovider", *files, **CHECKED)
