"""Surveys a relay directory without changing it, beside a running worker or without one.

``list_files`` reads heads only. ``verify`` reads every event: its CRC-32, length and position, the order of events in
source transactions, and whether files and GTIDs follow each other. It reports all problems, each with its place.

The end of the newest file may be incomplete: a worker is writing it, or the next start cuts it back. That is no damage
unless relay.meta names it as durable. A file that a worker purges meanwhile is left out.

Guarantees: nothing is written, no lock is taken. Not done here: decoding rows (``producer.convert.dump``).
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from millrace.errors import Fatal
from millrace.producer.binlog import events as t
from millrace.producer.binlog.file_head import read_first_gtid
from millrace.producer.relay import layout
from millrace.producer.relay.damage import WHY, Damage, GtidInterval
from millrace.producer.relay.files import DISK, Files, disk_errors
from millrace.producer.relay.layout import Subdir
from millrace.producer.relay.notes import SubdirNotes
from millrace.producer.relay.recovery import WalkResult, read_position_before, walk_stored
from millrace.producer.relay.stored_file import (
    FRAME_BYTES,
    StoredFile,
    open_stored,
    read_stored,
    stored_bytes,
)
from millrace.schemas.gtid import Flavour, GtidPosition, parse_gtid_set
from millrace.schemas.place import FIRST_POS, Coordinates
from millrace.wording import counted

_KIND_AT = 4
_SIZE_AT = slice(9, 13)


@dataclass(frozen=True, slots=True)
class ListedFile:
    """One file. ``before`` are the GTIDs executed before it, None if its head is unreadable."""

    at: Coordinates
    stored_bytes: int
    before: GtidPosition | None
    through: GtidPosition | None  # the GTIDs executed at its end, None if not known
    is_packed: bool
    is_active: bool


@dataclass(frozen=True, slots=True)
class Verdict:
    """The findings of ``verify``. ``problems`` are other contradictions, as sentences; ``notes`` are no problem."""

    files: int
    bytes: int
    position: str
    damages: tuple[Damage, ...]
    problems: tuple[str, ...]
    notes: tuple[str, ...]


@dataclass(slots=True)
class Survey:
    """A relay directory. Fatal MR-2013 if it has no files; Retryable MR-2002."""

    root: Path
    disk: Files = DISK
    flavour: Flavour = field(init=False)
    files: list[tuple[Subdir, str]] = field(init=False)
    notes: SubdirNotes = field(init=False)

    def __post_init__(self) -> None:
        with disk_errors(self.root):
            subdirs = layout.find_subdirs(self.root, self.disk)
            self.files = [
                (subdir, name)
                for subdir in subdirs
                for name in layout.list_files(self.root / str(subdir), self.disk)
            ]
            if not self.files:
                none = Fatal("MR-2013", f"{self.root} has no relay files", directory=self.root)
                raise none.name(set=self.root.name)
            self.flavour = self._flavour()
            self.notes = SubdirNotes(self.root, flavour=self.flavour, disk=self.disk)
            for subdir in subdirs:
                with suppress(FileNotFoundError):  # purged meanwhile
                    self.notes.load(subdir)

    # ---- listing -----------------------------------------------------------------------------------

    def list_files(self) -> list[ListedFile]:
        """Every file, oldest first."""
        return [listed for file in self.files if (listed := self._listed(*file)) is not None]

    def needed_by(self, listed: list[ListedFile], positions: Mapping[str, str]) -> dict[str, str]:
        """By task, the file that it resumes with: the newest one that begins at or before its position.

        The position of a task that begins at the first binlog is empty: it needs the oldest file. A task that has
        published more than this directory has needs no file: another worker's directory has it.
        """
        found = {}
        end = listed[-1].through if listed else None
        for task, text in positions.items():
            if not text and listed:
                found[task] = f"{listed[0].at.subdir}/{listed[0].at.file}"
                continue
            position = parse_gtid_set(self.flavour, text)
            if end is not None and not end.includes(position):
                continue
            for file in reversed(listed):
                if file.before is not None and position.includes(file.before):
                    found[task] = f"{file.at.subdir}/{file.at.file}"
                    break
        return found

    def _listed(self, subdir: Subdir, name: str) -> ListedFile | None:
        path, is_newest = self.root / str(subdir) / name, (subdir, name) == self.files[-1]
        with disk_errors(self.root):
            try:
                is_packed = name not in self.disk.list_files(path.parent)
                size = stored_bytes(path, self.disk)
                before = self._before(subdir, name)
            except FileNotFoundError:
                return None
        at = Coordinates(str(subdir), name, FIRST_POS)
        through = self._through(subdir, name, walks=is_newest)
        return ListedFile(at, size, before, through, is_packed, is_newest)

    def first_gtid(self, file: ListedFile) -> str:
        """The first GTID event of a file; "" if there is none in its first bytes."""
        try:
            stored = open_stored(self.root / file.at.subdir / file.at.file, self.disk)
        except (FileNotFoundError, Fatal):
            return ""
        try:
            return read_first_gtid(lambda wanted: read_stored(stored, 0, wanted))
        except Fatal:
            return ""
        finally:
            stored.close()

    # ---- verifying ---------------------------------------------------------------------------------

    def verify(self) -> Verdict:
        """Read everything; see the module."""
        damages: list[Damage] = []
        problems, notes = list(self._structure()), list[str]()
        total_bytes, position = 0, None
        for subdir, name in self.files:
            try:
                damage, walked = self.check_file(subdir, name)
            except FileNotFoundError:
                notes.append(f"{subdir}/{name} was purged meanwhile")
                continue
            if damage is not None:
                damages.append(damage)
            if walked is not None:
                total_bytes += walked.size
                position = self.notes.with_before(subdir, walked.position)
                problems += self._order_problems(subdir, name, position)
                if (subdir, name) == self.files[-1] and walked.walked_to < walked.size:
                    end = walked.end
                    notes.append(f"{subdir}/{name} ends inside an event; whole up to {end}")
        return Verdict(
            files=len(self.files),
            bytes=total_bytes,
            position=str(position or ""),
            damages=tuple(damages),
            problems=tuple(problems),
            notes=tuple(notes),
        )

    def check_file(self, subdir: Subdir, name: str) -> tuple[Damage | None, WalkResult | None]:
        """Walk a file with checksums: its damage, if any, and the walk, if its head is readable. FileNotFoundError."""
        try:
            with _opened(self.root / str(subdir) / name, self.disk) as cut:
                walked = walk_stored(cut, self.flavour)
                return self._damage(subdir, name, walked, cut.why), walked
        except Fatal as error:
            return self._head_damage(subdir, name, error.message), None

    def _damage(
        self, subdir: Subdir, name: str, walked: WalkResult | None, why: str
    ) -> Damage | None:
        if walked is None:
            return self._head_damage(subdir, name, "an incomplete head")
        is_newest = (subdir, name) == self.files[-1]
        if not why and walked.is_whole and walked.end == walked.size:
            return self._lost_end(subdir, name, walked)
        if is_newest and not why and walked.walked_to >= self._durable_end(subdir, name):
            return None
        if not why:
            bad = WHY.get(walked.status)
            why = bad or ("an incomplete transaction" if walked.is_whole else "an incomplete event")
        at = Coordinates(str(subdir), name, walked.walked_to)
        lost = GtidInterval(
            self.notes.with_before(subdir, walked.position), self._through(subdir, name)
        )
        return Damage(at, why, lost)

    def _lost_end(self, subdir: Subdir, name: str, walked: WalkResult) -> Damage | None:
        """A file that was cut between two events looks whole. The head of the next file shows the loss."""
        reached = self.notes.with_before(subdir, walked.position)
        is_short = walked.size < self._durable_end(subdir, name)
        through = (self._through if is_short else self._before_next)(subdir, name)
        if through is None or reached.includes(through):
            return None
        at = Coordinates(str(subdir), name, walked.end)
        return Damage(at, "a missing end", GtidInterval(reached, through))

    def _head_damage(self, subdir: Subdir, name: str, why: str) -> Damage | None:
        if (subdir, name) == self.files[-1] and not self._durable_end(subdir, name):
            return None  # its head has not arrived yet
        before = self._end_of_previous(subdir, name)
        lost = GtidInterval(before, self._through(subdir, name))
        return Damage(Coordinates(str(subdir), name, 0), why, lost)

    def _structure(self) -> Iterator[str]:
        """Contradictions between names."""
        with disk_errors(self.root):
            subdirs = layout.list_subdirs(self.root, self.disk)
            if layout.read_index(self.root, self.disk) != layout.index_text(subdirs):
                yield f"{layout.INDEX_NAME} does not name the sub-directories (a start rewrites it)"
            for subdir in subdirs:
                names = layout.list_files(self.root / str(subdir), self.disk)
                numbers = [layout.file_number(name) for name in names]
                for number, following, name in zip(numbers, numbers[1:], names, strict=False):
                    if following != number + 1:
                        gone = following - number - 1
                        missing = counted(gone, "file is missing", "files are missing")
                        yield f"{subdir}/{name}: {missing} after it"
                for name in self.disk.list_files(self.root / str(subdir)):
                    if name.endswith(layout.DAMAGED_SUFFIX):
                        yield f"{subdir}/{name}: was set aside as damaged"

    def _order_problems(self, subdir: Subdir, name: str, reached: GtidPosition) -> Iterator[str]:
        """Whether the GTIDs of the next file follow, and relay.meta names no more than the files have."""
        through = self._before_next(subdir, name)  # if it has more, that is damage
        if through is not None and not through.includes(reached):
            more = GtidInterval(through, reached)
            yield f"{subdir}/{name}: has transactions that the next file does not presume: {more}"
        meta = layout.read_meta(self.root / str(subdir), self.disk)
        if meta is not None and meta.binlog_name == name:
            known = parse_gtid_set(self.flavour, meta.binlog_gtid)
            if not reached.includes(known):
                more = GtidInterval(reached, known)
                yield f"{subdir}/{layout.META_NAME} names what {name} does not have: {more}"

    # ---- inside ------------------------------------------------------------------------------------

    def _flavour(self) -> Flavour:
        """From the second event of a file with a readable head."""
        for subdir, name in reversed(self.files):
            try:
                file = open_stored(self.root / str(subdir) / name, self.disk)
            except (FileNotFoundError, Fatal):
                continue
            try:
                head = read_stored(file, 0, 4096)
            except Fatal:
                continue
            finally:
                file.close()
            if len(head) < FIRST_POS + t.HEADER_BYTES:
                continue
            second = FIRST_POS + int.from_bytes(head[FIRST_POS:][_SIZE_AT], "little")
            kind = head[second + _KIND_AT] if len(head) > second + _KIND_AT else 0
            if kind in (t.MARIADB_GTID_LIST, t.MARIADB_START_ENCRYPTION):
                return Flavour.MARIADB
            if kind == t.PREVIOUS_GTIDS:
                return Flavour.MYSQL
        raise Fatal("MR-2004", f"no file in {self.root} has a readable head", directory=self.root)

    def _before(self, subdir: Subdir, name: str) -> GtidPosition | None:
        try:
            logged = read_position_before(self.root / str(subdir) / name, self.flavour, self.disk)
        except Fatal:
            return None
        return None if logged is None else self.notes.with_before(subdir, logged)

    def _through(self, subdir: Subdir, name: str, *, walks: bool = False) -> GtidPosition | None:
        """The GTIDs executed at the end of a file: from the head of the next one, or from relay.meta."""
        if (before := self._before_next(subdir, name)) is not None:
            return before
        if walks:
            try:
                _, walked = self.check_file(subdir, name)
            except FileNotFoundError:
                return None
            return None if walked is None else self.notes.with_before(subdir, walked.position)
        meta = layout.read_meta(self.root / str(subdir), self.disk)
        if meta is None or meta.binlog_name != name:
            return None
        return parse_gtid_set(self.flavour, meta.binlog_gtid)

    def _before_next(self, subdir: Subdir, name: str) -> GtidPosition | None:
        """The GTIDs executed before the file with the next number; None if it is missing."""
        index = self.files.index((subdir, name))
        for following, next_name in self.files[index + 1 : index + 2]:
            is_next = layout.file_number(next_name) == layout.file_number(name) + 1
            if following == subdir and is_next:
                try:
                    return self._before(following, next_name)
                except FileNotFoundError:
                    return None
        return None

    def _end_of_previous(self, subdir: Subdir, name: str) -> GtidPosition | None:
        index = self.files.index((subdir, name))
        if index == 0 or self.files[index - 1][0] != subdir:
            return self.notes.before(subdir)
        try:
            _, walked = self.check_file(*self.files[index - 1])
        except FileNotFoundError:
            return None
        return None if walked is None else self.notes.with_before(subdir, walked.position)

    def _durable_end(self, subdir: Subdir, name: str) -> int:
        meta = layout.read_meta(self.root / str(subdir), self.disk)
        return meta.binlog_pos if meta is not None and meta.binlog_name == name else 0


class _CutFile:
    """A file that ends before its first part that can't be unpacked; ``why`` is the reason, "" if there is none."""

    def __init__(self, file: StoredFile) -> None:
        self._file = file
        self.why = ""

    def size(self) -> int:
        return self._file.size()

    def fill(self, target: memoryview, offset: int) -> int:
        try:
            return self._file.fill(target, offset)
        except Fatal as error:
            self.why = error.message
        done = 0
        while done < len(target):
            end = min(len(target), done + FRAME_BYTES - (offset + done) % FRAME_BYTES)
            try:
                done += self._file.fill(target[done:end], offset + done)
            except Fatal:
                break
        return done

    def close(self) -> None:
        self._file.close()


@contextmanager
def _opened(path: Path, files: Files) -> Iterator[_CutFile]:
    file = _CutFile(open_stored(path, files))
    try:
        yield file
    finally:
        file.close()
