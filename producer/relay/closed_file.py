"""Checks a closed relay file before its first read, so that a reader does not skip a missing end.

A file that was cut between two events looks whole. The previous GTIDs of the next file reveal the loss.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from millrace.errors import Fatal
from producer.relay.files import Files, disk_errors
from producer.relay.layout import Subdir
from producer.relay.recovery import walk_file
from schemas.gtid import Flavour, GtidPosition
from schemas.place import FIRST_POS, Coordinates


class Log(Protocol):
    """The part of a relay log that is needed here."""

    root: Path
    flavour: Flavour
    disk: Files

    def path(self, at: Coordinates) -> Path: ...

    def list_files(self) -> Sequence[tuple[Subdir, str]]:
        """All files, oldest first."""
        ...

    def position_before(self, at: Coordinates) -> GtidPosition | None:
        """The GTIDs executed before the file of ``at``."""
        ...

    def with_before(self, name: str, logged: GtidPosition) -> GtidPosition:
        """``logged`` plus the GTIDs before the sub-directory ``name``."""
        ...


def closed_end(relay: Log, at: Coordinates) -> int:
    """The size of a whole closed file. Fatal MR-2004 if it is damaged, Retryable MR-2002."""
    with disk_errors(relay.root, at):
        walked = walk_file(relay.path(at), relay.flavour, relay.disk)
    if walked is None:
        where = "in its head"
    elif not walked.is_whole:
        where = f"at {walked.walked_to}"
    else:
        before = _position_before_next(relay, at)
        if before is None or relay.with_before(at.subdir, walked.position).includes(before):
            return walked.end
        where = f"at its end: {before} was executed before the next file"
    message = f"{at.subdir}/{at.file} is damaged {where}"
    raise Fatal("MR-2004", message, directory=relay.root, coordinates=at)


def _position_before_next(relay: Log, at: Coordinates) -> GtidPosition | None:
    """The GTIDs executed before the file with the next number, if there is one."""
    for subdir, name in relay.list_files():
        following = Coordinates(str(subdir), name, FIRST_POS)
        if at.subdir == following.subdir and at.order[1] + 1 == following.order[1]:
            return relay.position_before(following)
    return None
