"""A folder in memory, for tests that make thousands of small files, none of which has to last."""

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture
def memory_path(tmp_path: Path) -> Iterator[Path]:
    """Like ``tmp_path``, in memory where the system has such a place; gone with the test."""
    memory = Path("/dev/shm")
    made = Path(tempfile.mkdtemp(dir=memory if memory.is_dir() else tmp_path))
    yield made
    shutil.rmtree(made)
