"""Notes beside the files of a sub-directory, about facts that the files do not hold. Written before the first file.

    relay.before   the GTIDs that its server had executed before its first file
    relay.apart    the sub-directory does not continue the preceding one: its server was missing transactions of that
                   one, or has not been compared with it yet

| step                                        | a crash after it leaves                                               |
|---------------------------------------------|-----------------------------------------------------------------------|
| relay.apart written, first file received    | a sub-directory in which readers may start; none crosses over to it   |
| the servers were compared: ``join`` removes | the same, or a sub-directory to which readers cross over              |
| relay.apart                                 |                                                                       |

Guarantees: a note is durable before the sub-directory has a file. One thread changes notes, any number read.

One more note, in the relay directory itself, has a setting of the source that its binlog does not show:

    relay.source   {"lower_case_table_names": 0 or 1}

The worker writes it when it has chosen a member. Without it, names are taken as they are.
"""

import json
from pathlib import Path

from millrace.faults import fault_point, register
from millrace.log import get_logger
from millrace.producer.relay import layout
from millrace.producer.relay.files import DISK, Files, read_all
from millrace.producer.relay.layout import Subdir
from millrace.schemas.gtid import Flavour, GtidPosition, unite

BEFORE_JOIN = register("relay.before_join")
AFTER_JOIN = register("relay.after_join")


class SubdirNotes:
    """The notes of all sub-directories of a relay log."""

    def __init__(self, root: Path, *, flavour: Flavour, disk: Files) -> None:
        self._root = root
        self._flavour = flavour
        self._disk = disk
        self._befores: dict[Subdir, GtidPosition] = {}
        self._apart: set[Subdir] = set()

    def load(self, subdir: Subdir) -> None:
        directory = self._root / str(subdir)
        before = layout.read_before(directory, self._flavour, self._disk)
        if before is not None:
            self._befores[subdir] = before
        if layout.is_diverged(directory, self._disk):
            self._apart.add(subdir)

    def write(self, subdir: Subdir, *, before: GtidPosition | None, apart: str) -> None:
        """Write the notes of a new sub-directory. ``apart``: why it is apart; "" if it is not.

        A dropped sub-directory may have had the same name; its notes no longer count.
        """
        directory = self._root / str(subdir)
        self._befores.pop(subdir, None)
        self._apart.discard(subdir)
        if before is not None:
            layout.write_before(directory, before, self._disk)
            self._befores[subdir] = before
        if apart:
            layout.write_diverged(directory, apart, self._disk)
            self._apart.add(subdir)

    def join(self, subdir: Subdir) -> None:
        """Let readers cross over to ``subdir``: its server has the transactions that the preceding one ends with."""
        fault_point(BEFORE_JOIN)
        layout.remove_diverged(self._root / str(subdir), self._disk)
        self._apart.discard(subdir)
        fault_point(AFTER_JOIN)

    def is_apart(self, subdir: Subdir) -> bool:
        """Whether readers must not cross over from the preceding sub-directory."""
        return subdir in self._apart

    def before(self, subdir: Subdir) -> GtidPosition | None:
        """The GTIDs executed before its first file, even if that has no head yet; None without a note."""
        return self._befores.get(subdir)

    def with_before(self, subdir: Subdir, logged: GtidPosition) -> GtidPosition:
        """``logged`` plus the GTIDs that the server of the sub-directory had executed before its first file."""
        before = self._befores.get(subdir)
        return logged if before is None else unite(logged, before)


SOURCE_NAME = "relay.source"
_FOLDS = "lower_case_table_names"

log = get_logger("producer.relay")


def write_source_note(root: Path, *, folds_names: bool, files: Files = DISK) -> None:
    """Replace the note. A disk error is only logged."""
    try:
        text = json.dumps({_FOLDS: int(folds_names)}) + "\n"
        layout.replace_file(root / SOURCE_NAME, text, is_durable=False, files=files)
    except OSError as error:
        log.warning("source note not written", file=str(root / SOURCE_NAME), error=error)


def read_source_note(root: Path, files: Files = DISK) -> int:
    try:
        note = json.loads(read_all(files, root / SOURCE_NAME))
    except (OSError, ValueError):
        return 0
    return 1 if isinstance(note, dict) and note.get(_FOLDS) else 0
