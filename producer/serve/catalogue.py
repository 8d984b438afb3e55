"""The files that a relay directory can serve now, and how far the newest one is durable. It follows a worker's writes.

    hidden        a sub-directory that was not compared with the preceding one yet, and any after it: the worker may
                  still drop it
    the chain     the files from the oldest one on after which no transaction is missing up to the end. A client that
                  names GTIDs is served from it. Files before it are served by name only.
    the end       of the newest file: what ``relay.durable`` or relay.meta names

Guarantees: an immutable snapshot; what it names is durable and ends with a whole source transaction, so the worker
never takes it back. A closed file was walked with checksums before its end is known. Nothing is written, no lock is
taken. Not done here: damage is not repaired. A damaged file ends the chain.

File names that clients see: unique over all sub-directories of a relay log.

    sub-directory                                file                 served name
    3e11fa47-71ca-11e1-9e33-c80aa9429562.000002  mysql-bin.000017     mysql-bin-000002.000017

Two members may both have a ``mysql-bin.000017``. A client that keeps a file and a position must never find another
member's file under that name, so the sequence number of the sub-directory is a part of it.
"""

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from millrace.errors import Fatal, MillraceError
from millrace.log import get_logger
from millrace.producer.relay import layout
from millrace.producer.relay.durable_end import read_durable
from millrace.producer.relay.files import DISK, Files
from millrace.producer.relay.layout import SEQ_DIGITS, Subdir
from millrace.producer.relay.recovery import read_position_before
from millrace.producer.relay.stored_file import StoredFile, open_stored
from millrace.producer.relay.survey import Survey
from millrace.producer.serve.walked import Walk, Walks
from millrace.schemas.gtid import Flavour, GtidPosition, unite
from millrace.schemas.place import FIRST_POS, Coordinates

POLL_S = 0.02  # a client gets a transaction this much later than it is durable
LIST_S = 0.25  # new files show in ``relay.durable`` at once; this is for sub-directories that join, and for purges

log = get_logger("producer.serve")


@dataclass(frozen=True, slots=True)
class ServedFile:
    """One file. ``before``: the GTIDs executed before it."""

    subdir: Subdir
    name: str
    before: GtidPosition

    @property
    def served_name(self) -> str:
        return served_name(self.subdir, self.name)

    @property
    def key(self) -> tuple[str, str]:
        return str(self.subdir), self.name

    def precedes(self, other: "ServedFile") -> bool:
        """Whether ``other`` is the next file of the same sub-directory."""
        number = layout.file_number(self.name) + 1
        return self.subdir == other.subdir and layout.file_number(other.name) == number


@dataclass(frozen=True, slots=True)
class Served:
    """A snapshot. ``chain``: the index of its first file. ``end``: the durable offset in the newest file."""

    files: tuple[ServedFile, ...] = ()
    chain: int = 0
    end: int = FIRST_POS

    @property
    def newest(self) -> ServedFile | None:
        return self.files[-1] if self.files else None

    def find(self, name: str) -> ServedFile | None:
        """The file with this served name."""
        return next((file for file in self.files if file.served_name == name), None)

    def after(self, file: ServedFile) -> ServedFile | None:
        """The file after ``file``, in its sub-directory or a later one."""
        later = (found for found in self.files if _order(found) > _order(file))
        return next(later, None)

    def start_for(self, done: GtidPosition) -> ServedFile | None:
        """The newest file of the chain that, with those after it, has everything after ``done``."""
        return _newest_before(self.files[self.chain :], done)

    def start_in(self, subdir: Subdir, done: GtidPosition) -> ServedFile | None:
        """The same among the files of one sub-directory."""
        return _newest_before([file for file in self.files if file.subdir == subdir], done)


class Catalogue:
    """The snapshot, and what can be found out about its files. ``follow`` renews it; any number of threads read."""

    def __init__(self, root: Path, disk: Files = DISK) -> None:
        self.root = root
        self.disk = disk
        self.flavour: Flavour = Survey(root, disk).flavour
        self.condition = threading.Condition()  # notified when the snapshot changes
        self.served = Served()
        self._walks = Walks()
        self._befores: dict[tuple[str, str], GtidPosition] = {}
        self._continuous: dict[tuple[tuple[str, str], tuple[str, str]], bool] = {}
        self._newer_is_hidden = False
        self.refresh()

    # ---- following the worker ------------------------------------------------------------------------

    def follow(self, stop: threading.Event) -> None:
        """Renew the snapshot until ``stop``. Errors of the disk or of the files are logged, and retried."""
        polls, said = 0, ""
        while not stop.wait(POLL_S):
            polls += 1
            try:
                if polls * POLL_S >= LIST_S or not self._follow_end():
                    polls = 0
                    self.refresh()
                said = ""
            except (OSError, MillraceError) as error:
                if str(error) != said:
                    log.warning("relay directory can't be read", error=error)
                said = str(error)

    def refresh(self) -> None:
        """List the directory again."""
        files = self._list()
        end = self._durable_end(files[-1]) if files else FIRST_POS
        if files and files[-1] == self.served.newest and end < self.served.end:
            # an operator removed the relay directory, and it was filled again
            self._walks.keep(set())
        self._publish(Served(files, self._chain_start(files), end))
        known = {file.key for file in files}
        self._walks.keep(known)
        self._befores = {key: self._befores[key] for key in self._befores.keys() & known}

    def wait(self, seen: Served, timeout_s: float | None) -> Served:
        """The snapshot, once it is another than ``seen``, or after ``timeout_s``."""
        with self.condition:
            self.condition.wait_for(lambda: self.served is not seen, timeout_s)
            return self.served

    def _publish(self, served: Served) -> None:
        if served != self.served:
            with self.condition:
                self.served = served
                self.condition.notify_all()

    def _follow_end(self) -> bool:
        """Move the end of the newest file; False if the note names a file that is not in the list."""
        served, noted = self.served, read_durable(self.root, self.disk)
        if noted is None or served.newest is None:
            return noted is None
        if (noted.subdir, noted.file) != served.newest.key:
            is_known = any(file.key == (noted.subdir, noted.file) for file in served.files)
            return is_known or self._newer_is_hidden
        if noted.pos > served.end:
            self._publish(Served(served.files, served.chain, noted.pos))
        return True

    def _list(self) -> tuple[ServedFile, ...]:
        found: list[ServedFile] = []
        self._newer_is_hidden = False
        for subdir in layout.list_subdirs(self.root, self.disk):
            directory = self.root / str(subdir)
            if layout.read_diverged(directory, self.disk) == layout.NOT_COMPARED:
                self._newer_is_hidden = True
                break
            noted = layout.read_before(directory, self.flavour, self.disk)
            for name in layout.list_files(directory, self.disk):
                before = self._before(subdir, name, noted)
                if before is not None:
                    found.append(ServedFile(subdir, name, before))
        return tuple(found)

    def _before(self, subdir: Subdir, name: str, noted: GtidPosition | None) -> GtidPosition | None:
        """The GTIDs executed before a file; None if its head is incomplete, damaged or gone."""
        key = str(subdir), name
        known = self._befores.get(key)
        if known is not None:
            return known
        try:
            logged = read_position_before(self.root / str(subdir) / name, self.flavour, self.disk)
        except (FileNotFoundError, Fatal):
            return None
        if logged is None:
            return None
        self._befores[key] = logged if noted is None else unite(logged, noted)
        return self._befores[key]

    def _durable_end(self, file: ServedFile) -> int:
        """How far a file may be served that is the newest in the list."""
        if self._newer_is_hidden:
            return self.end_of(file, None).end
        ends = [FIRST_POS]
        noted = read_durable(self.root, self.disk)
        if noted is not None and (noted.subdir, noted.file) == file.key:
            ends.append(noted.pos)
        meta = layout.read_meta(self.root / str(file.subdir), self.disk)
        if meta is not None and meta.binlog_name == file.name:
            ends.append(meta.binlog_pos)
        return min(max(ends), self._size(file))

    def _chain_start(self, files: tuple[ServedFile, ...]) -> int:
        start = max(len(files) - 1, 0)
        while start and self._is_continuous(files[start - 1], files[start]):
            start -= 1
        return start

    def _is_continuous(self, older: ServedFile, newer: ServedFile) -> bool:
        """Whether no transaction is missing between two adjacent files, by the rules of ``RelayReader``."""
        if older.subdir == newer.subdir:
            return older.precedes(newer)
        if older.subdir.server == newer.subdir.server:
            return False
        known = self._continuous.get((older.key, newer.key))
        if known is None:
            is_apart = bool(layout.read_diverged(self.root / str(newer.subdir), self.disk))
            try:
                known = not is_apart and self.end_of(older, newer).position.includes(newer.before)
            except (FileNotFoundError, Fatal) as error:
                log.warning("relay file can't be walked", file=older.name, error=error)
                return False
            self._continuous[older.key, newer.key] = known
        return known

    # ---- about files -----------------------------------------------------------------------------------

    def is_joined(self, older: ServedFile, newer: ServedFile) -> bool:
        """Whether a client may continue from ``older`` with ``newer``, the next file."""
        return self._is_continuous(older, newer)

    def end_of(
        self, file: ServedFile, following: ServedFile | None, stored: StoredFile | None = None
    ) -> Walk:
        """The walk over a closed file. FileNotFoundError; Fatal MR-2004 if it is damaged.

        ``following``: the next file, which shows whether the end of this one is missing. ``stored``: the file, if it
        is open. It may be purged meanwhile.
        """
        with self._opened(file, stored) as opened:
            walk = self._walks.up_to(file.key, opened, before=file.before, end=opened.size())
        is_followed = following is not None and file.precedes(following)
        if is_followed and following and not walk.position.includes(following.before):
            raise Fatal("MR-2004", f"{file.subdir}/{file.name} is damaged: its end is missing")
        return walk

    def reached(self) -> Walk | None:
        """The walk up to the end of the newest file; None if there is no file."""
        served = self.served
        if served.newest is None:
            return None
        newest = served.newest
        with self._opened(newest) as opened:
            return self._walks.up_to(newest.key, opened, before=newest.before, end=served.end)

    def noted_before(self, subdir: Subdir) -> GtidPosition | None:
        """The GTIDs that the server of a sub-directory had executed before its first file, if they were noted."""
        return layout.read_before(self.root / str(subdir), self.flavour, self.disk)

    def path(self, file: ServedFile) -> Path:
        return self.root / str(file.subdir) / file.name

    def size_of(self, served: Served, file: ServedFile) -> int:
        """The bytes of a file that can be served. FileNotFoundError."""
        return served.end if file == served.newest else self._size(file)

    def _size(self, file: ServedFile) -> int:
        with self._opened(file) as opened:
            return opened.size()

    @contextmanager
    def _opened(self, file: ServedFile, stored: StoredFile | None = None) -> Iterator[StoredFile]:
        if stored is not None:
            yield stored
            return
        opened = open_stored(self.path(file), self.disk)
        try:
            yield opened
        finally:
            opened.close()


def _newest_before(files: Sequence[ServedFile], done: GtidPosition) -> ServedFile | None:
    return next((file for file in reversed(files) if done.includes(file.before)), None)


def _order(file: ServedFile) -> tuple[int, int]:
    at = Coordinates(str(file.subdir), file.name, FIRST_POS).order
    return at[0], at[1]


def served_name(subdir: Subdir, name: str) -> str:
    """The name under which a file is served."""
    stem, dot, number = name.rpartition(".")
    return f"{stem}-{subdir.seq:0{SEQ_DIGITS}d}{dot}{number}"
