"""A relay directory after a crash: any prefix of its newest file, followed by old disk contents.

Harsher than a real disk, which keeps synced bytes: the receiver must fetch all lost bytes again and cut incomplete
source transactions.
"""

import shutil
from enum import StrEnum
from pathlib import Path
from random import Random

from millrace.producer.relay import layout


class Loss(StrEnum):
    """The damage to a directory."""

    NOTHING = "nothing"  # kill -9: what was written is there
    CUT = "cut"  # unsynced bytes are gone
    ZEROS = "zeros"  # the length was kept, the bytes were not
    GARBAGE = "garbage"
    META = "meta"  # relay.meta and the index are gone
    ALL = "all"  # the directory is gone


def crash(directory: Path, loss: Loss, chance: Random) -> None:
    """Damage the directory as ``loss`` describes."""
    newest = newest_file(directory)
    if loss is Loss.ALL:
        shutil.rmtree(directory, ignore_errors=True)
    elif loss is Loss.META:
        for hint in (directory / layout.INDEX_NAME, *directory.glob(f"*/{layout.META_NAME}")):
            hint.unlink(missing_ok=True)
    elif loss is not Loss.NOTHING and newest is not None:
        content = newest.read_bytes()
        kept = chance.randint(0, len(content))
        lost = len(content) - kept
        rest = {Loss.CUT: b"", Loss.ZEROS: bytes(lost), Loss.GARBAGE: chance.randbytes(lost)}
        newest.write_bytes(content[:kept] + rest[loss])


def newest_file(directory: Path) -> Path | None:
    """The last file of the newest sub-directory that has one."""
    if not directory.exists():
        return None
    for subdir in reversed(layout.list_subdirs(directory)):
        if names := layout.list_files(directory / str(subdir)):
            return directory / str(subdir) / names[-1]
    return None


def all_files(directory: Path) -> list[Path]:
    """Every binlog file of the directory."""
    if not directory.exists():
        return []
    return [
        directory / str(subdir) / name
        for subdir in layout.list_subdirs(directory)
        for name in layout.list_files(directory / str(subdir))
    ]
