"""Input of unusual structure gives rows or a coded error in every kernel, at and beyond every fixed size."""

import os
import subprocess
import sys

import pytest

CHECKED, UNCOMPILED = "MILLRACE_KERNEL_CHECKED", "NUMBA_DISABLE_JIT"


def _fuzzed(seed: int, rounds: int, mode: str) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-m", "tests.kit.fuzz.structure", f"{seed}", f"{rounds}"],
        env={**os.environ, mode: "1"},
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert "MR-6003" in done.stdout


@pytest.mark.guarantee("robust")
def test_every_fixed_size_has_a_border() -> None:
    """65 columns of a key, 65 labels of a SET, 102 levels of JSON, no column at all: an error with a code.

    The kernels run as plain Python, which needs no compiler and refuses an index outside an array.
    """
    _fuzzed(1, 20, UNCOMPILED)


@pytest.mark.chaos
@pytest.mark.parametrize(("mode", "rounds"), [(CHECKED, 20_000), (UNCOMPILED, 1_000)])
def test_any_structure_gives_rows_or_an_error(mode: str, rounds: int) -> None:
    """The same with random counts, tested for minutes."""
    _fuzzed(int.from_bytes(os.urandom(3)), rounds, mode)
