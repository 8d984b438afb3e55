"""Scratch folders of a Spark driver: in memory for checkpoints, on disk for libraries. Apart: no Spark.

Nothing in them outlives the driver. Each name contains the driver's process ID, so that the next driver removes the
folders of a killed one.
"""

import os
import shutil
import tempfile
from pathlib import Path

LOCAL_FREE_MIN_BYTES = 3 << 30  # Docker's memory file system has 64 MB
PREFIX = "millrace-apply-"


def memory_folder() -> Path:
    """A new folder in memory; among the temporary files if there is no memory file system."""
    memory = Path("/dev/shm")  # noqa: S108 - the folder in it is readable only by its owner
    return new_folder(memory if memory.is_dir() else temporary())


def temporary() -> Path:
    """The folder of temporary files."""
    return Path(tempfile.gettempdir())


def new_folder(parent: Path) -> Path:
    """A new folder for this process. Removes folders of processes that have ended."""
    for left in parent.glob(f"{PREFIX}*-*"):
        process = left.name.removeprefix(PREFIX).partition("-")[0]
        if process.isdigit() and not Path("/proc", process).exists():
            shutil.rmtree(left, ignore_errors=True)
    return Path(tempfile.mkdtemp(prefix=f"{PREFIX}{os.getpid()}-", dir=parent))


def shuffle_folder(memory: Path, disk: Path) -> Path:
    """Where Spark shuffles and spills: in memory if it has enough room."""
    has_room = shutil.disk_usage(memory).free >= LOCAL_FREE_MIN_BYTES
    return memory if has_room else disk


def folders_under(*roots: Path) -> tuple[Path, ...]:
    """All folders below ``roots`` and the ones that Spark creates later for its blocks; parents first."""
    found = [
        folder for root in roots for folder in (root, *sorted(root.rglob("*"))) if folder.is_dir()
    ]
    blocks = [folder / "00" for folder in found if folder.name.startswith("blockmgr-")]
    return (*found, *blocks)
