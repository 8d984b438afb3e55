"""The only writer of the relay log: appends the source's bytes and makes them durable in groups.

The process that holds the directory's lock appends event bytes. Readers see the log up to the end of the last whole
source transaction. The steps, and what a crash after each one leaves:

| step                                     | a crash after it leaves                                              |
|------------------------------------------|----------------------------------------------------------------------|
| new sub-directory, relay.before, .apart  | an empty sub-directory: the next start removes it                    |
| new file with its magic                  | a file without a head: the next start removes it (``recovery``)      |
| write of event bytes, whole or in part   | a torn tail: cut back to the last whole transaction                  |
| fsync (other thread)                     | a loss of at most what ``SyncPolicy`` names: fetched again           |
| relay.meta replaced                      | a hint: the part of the file that was durable                        |
| next file: fsync, close, meta, new file  | only the newest file can have a torn tail                            |

A power cut may shorten the log but never changes its bytes. A name is durable before bytes are written to its file, a
file is durable before the next one is created, and relay.meta names only durable bytes. The start rewrites the index
and relay.meta if they disagree with the files. On a full disk they may be outdated, and the log opens nevertheless.

After a failed write or fsync this object is unusable: every further write fails, and the file is cut back (after a
failed fsync, to the last synced end). ``RelayLog.open`` then walks it again.

Guarantees: bytes never change in place; the lock excludes a second writer. Not done here: the network, purge.
"""

import threading
import time
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Self

from millrace.errors import Fatal, Retryable
from millrace.faults import fault_point, is_armed, register
from millrace.log import get_logger
from millrace.producer.binlog.compiled import Bytes, Words
from millrace.producer.binlog.gtid_runs import advance_position, empty_position
from millrace.producer.relay import layout
from millrace.producer.relay.durable_end import SyncPolicy, SyncThread, note_durable
from millrace.producer.relay.files import DISK, Files, disk_errors, read_range, write_all
from millrace.producer.relay.holds import Holds
from millrace.producer.relay.layout import Meta, Subdir
from millrace.producer.relay.notes import SubdirNotes
from millrace.producer.relay.open_file import WRITE_FAILED, OpenFile, ResumePoint, create_file
from millrace.producer.relay.recovery import read_position_before, recover_file, walk_file
from millrace.producer.relay.stored_file import remove_leftovers, remove_stored, unpack
from millrace.schemas.gtid import Flavour, GtidPosition
from millrace.schemas.place import FIRST_POS, Coordinates

BEFORE_WRITE = register("relay.before_write")
MID_WRITE = register("relay.mid_write")
AFTER_WRITE = register("relay.after_write")
BEFORE_FSYNC = register("relay.before_fsync")
AFTER_FSYNC = register("relay.after_fsync")
BEFORE_ROTATE = register("relay.before_rotate")
AFTER_ROTATE = register("relay.after_rotate")
BEFORE_META = register("relay.before_meta")
AFTER_SUBDIR = register("relay.after_subdir")
BEFORE_DROP = register("relay.before_drop")
AFTER_DROP = register("relay.after_drop")

META_INTERVAL_S = 1.0  # the minimum between replacements of relay.meta, except at the end of a file
PENDING_RUNS_MAX = 256  # arrays of runs kept before they are added to the position

log = get_logger("producer.relay")


class RelayLog:
    """The relay log of one set. ``open`` takes the lock and cuts a torn tail; one thread appends, any number read."""

    def __init__(
        self, root: Path, lock_fd: int, *, flavour: Flavour, policy: SyncPolicy, disk: Files
    ) -> None:
        self.root = root
        self.flavour = flavour
        self.disk = disk
        self.condition = threading.Condition()  # guards the state; notified when the end moves
        self.files: dict[Subdir, list[str]] = {}
        self.notes = SubdirNotes(root, flavour=flavour, disk=disk)
        self._lock_fd = lock_fd
        self._file: OpenFile | None = None
        self._subdir: Subdir | None = None
        self._position: GtidPosition | None = None  # None: the position of the file's head
        self._pending_runs: list[Words] = []
        # Protects the fd from being closed during a sync. Only one thread at a time writes relay.meta.
        self._fd_lock = threading.RLock()
        self._meta_at_s = 0.0
        self.holds = Holds()
        self._closed_ends: dict[tuple[str, str], int] = {}
        self._cut_file: tuple[str, str] | None = None
        try:
            self._load()
            self._sync_thread = SyncThread(policy, self._sync)
        except BaseException:
            self._close_loaded_file()
            raise

    @classmethod
    def open(
        cls, root: Path, *, flavour: Flavour, policy: SyncPolicy | None = None, disk: Files = DISK
    ) -> Self:
        """Take the lock and cut a torn tail. Retryable MR-2001 (lock), MR-2002 (disk)."""
        with disk_errors(root), ExitStack() as undo:
            disk.make_directory(root)
            try:
                lock_fd = disk.lock(root / layout.LOCK_NAME)
            except BlockingIOError as error:
                raise Retryable(
                    "MR-2001", "another process holds the relay directory", directory=root
                ) from error
            undo.callback(disk.close, lock_fd)
            relay = cls(root, lock_fd, flavour=flavour, policy=policy or SyncPolicy(), disk=disk)
            undo.pop_all()
        return relay

    def close(self) -> None:
        """Make everything durable and release the directory."""
        self._sync_thread.stop()
        try:
            with disk_errors(self.root):
                try:
                    self._close_file()
                finally:
                    self.disk.close(self._lock_fd)
        except Retryable as error:
            log.warning("relay log closed after an error", error=error)

    # ---- for readers and the receiver ---------------------------------------------------------------

    def end(self) -> Coordinates | None:
        """The end of the last whole source transaction; None if there is no file."""
        with self.condition:
            if self._file is None:
                return None
            return Coordinates(str(self._file.subdir), self._file.name, self._file.end)

    def position(self) -> GtidPosition:
        """The GTIDs of every source transaction up to ``end``."""
        with self.condition:
            return self._fold_runs()

    def resume_point(self) -> ResumePoint | None:
        """Where to resume the dump; None if there is no file."""
        with self.condition:
            if self._file is None:
                return None
            file = self._file
            at = Coordinates(str(file.subdir), file.name, file.end)
            overlap_at = file.last_group_at or FIRST_POS
            return ResumePoint(at, file.subdir.server, overlap_at, self._fold_runs())

    def path(self, at: Coordinates) -> Path:
        return self.root / at.subdir / at.file

    def visible_end(self, at: Coordinates) -> int:
        """The offset up to which the file of ``at`` may be read. Fatal MR-2004; Retryable MR-2003 after a cut."""
        with self.condition:
            file = self._file
            if file is not None and (str(file.subdir), file.name) == (at.subdir, at.file):
                return file.end
            if self._cut_file == (at.subdir, at.file):
                raise Retryable(
                    "MR-2003",
                    f"the file of {at} was cut back to its durable end",
                    directory=self.root,
                )
            end = self._closed_ends.get((at.subdir, at.file))
        if end is None:
            end = self._closed_end(at)
            with self.condition:
                self._closed_ends[at.subdir, at.file] = end
        return end

    def position_before(self, at: Coordinates) -> GtidPosition | None:
        """The GTIDs executed before the file of ``at``; None while its head is incomplete."""
        with disk_errors(self.root, at):
            logged = read_position_before(self.path(at), self.flavour, self.disk)
        return None if logged is None else self.with_before(at.subdir, logged)

    def with_before(self, name: str, logged: GtidPosition) -> GtidPosition:
        """``logged`` plus the GTIDs that were executed before the first file of the sub-directory ``name``."""
        subdir = layout.parse_subdir(name)
        return logged if subdir is None else self.notes.with_before(subdir, logged)

    def join(self, subdir: Subdir) -> None:
        """Let readers cross over to ``subdir``, which ``begin_subdir`` began apart. Retryable MR-2002."""
        with disk_errors(self.root):
            self.notes.join(subdir)
        with self.condition:
            self.condition.notify_all()

    def tail(self, bytes_max: int) -> Coordinates | None:
        """Where the last whole source transactions of the newest file begin, at most ``bytes_max`` before its end."""
        with self.condition:
            file = self._file
            if file is None or (start := file.tail_start(bytes_max)) == file.end:
                return None
            return Coordinates(str(file.subdir), file.name, start)

    def list_files(self) -> list[tuple[Subdir, str]]:
        with self.condition:
            order = sorted(self.files, key=lambda subdir: subdir.seq)
            return [(subdir, name) for subdir in order for name in self.files[subdir]]

    def held(self) -> Coordinates | None:
        """The oldest coordinates that a reader or the writer needs."""
        places = [self.end(), self.holds.oldest()]
        return min((at for at in places if at is not None), default=None)

    def forget(self, subdir: Subdir, name: str) -> bool:
        """Remove the oldest file from the list before it is deleted; False if it is needed."""
        with self.condition:
            held = self.held()
            at = Coordinates(str(subdir), name, FIRST_POS)
            if held is None or at.order[:2] >= held.order[:2]:
                return False
            self.unlist(at)
            return True

    def unlist(self, at: Coordinates) -> None:
        with self.condition:
            names = next(self.files[subdir] for subdir in self.files if str(subdir) == at.subdir)
            names.remove(at.file)
            self._closed_ends.pop((at.subdir, at.file), None)

    def forget_subdir(self, subdir: Subdir) -> None:
        with self.condition:
            if not self.files.get(subdir):
                self.files.pop(subdir, None)
            layout.write_index(self.root, self.files, self.disk)

    def read_back(self, start: int, end: int) -> bytes:
        """Read bytes of the file being written, to compare them with the bytes that the server sends again."""
        file = self._current_file()
        with disk_errors(self.root):
            return read_range(self.disk, file.fd, start, end)

    # ---- for the receiver --------------------------------------------------------------------------

    def begin_subdir(
        self, server: str, *, before: GtidPosition | None = None, apart: str = ""
    ) -> Subdir:
        """Create the next sub-directory for ``server``; the next ``begin_file`` creates its file there.

        ``before``: the GTIDs that the server executed before that file. ``apart``: why no reader may cross over to it,
        such as the transactions that the server is missing.
        """
        self._check_usable()
        with disk_errors(self.root):
            self._close_file()
            taken = (subdir.seq for subdir in layout.list_subdirs(self.root, self.disk))
            subdir = Subdir(server, max(taken, default=0) + 1)
            self.disk.make_directory(self.root / str(subdir))
            self.disk.sync_directory(self.root)
            fault_point(AFTER_SUBDIR)
            self.notes.write(subdir, before=before, apart=apart)
            with self.condition:
                self.files[subdir] = []
                self._subdir, self._position = subdir, None
                self._pending_runs.clear()
            layout.write_index(self.root, self.files, self.disk)
        return subdir

    def drop_subdir(self, subdir: Subdir) -> None:
        """Delete the newest sub-directory, which is apart and has no reader, and continue in the preceding one.

        Its server is not the one to continue with. A crash leaves it apart, or without its last files.
        """
        with disk_errors(self.root):
            self._close_file()
            fault_point(BEFORE_DROP)
            for name in reversed(self.files[subdir]):
                remove_stored(self.root / str(subdir) / name, self.disk)
            # A power cut must not bring files back without the note that they are apart.
            self.disk.sync_directory(self.root / str(subdir))
            layout.remove_subdir(self.root / str(subdir), self.disk)
            fault_point(AFTER_DROP)
            with self.condition:
                del self.files[subdir]
                self._subdir, self._position = None, None
                self._pending_runs.clear()
                for older in sorted(self.files, key=lambda older: -older.seq):
                    self._load_subdir(older)
            layout.write_index(self.root, self.files, self.disk)

    def begin_file(self, name: str) -> None:
        """Close the file being written, durably, and create ``name`` in the newest sub-directory."""
        layout.file_number(name)
        self._check_usable()
        subdir = self._subdir
        if subdir is None:
            raise Retryable("MR-2011", "no relay sub-directory is open", directory=self.root)
        with disk_errors(self.root):
            fault_point(BEFORE_ROTATE)
            self._close_file()
            fd = create_file(self.root / str(subdir) / name, self.disk)
            fault_point(AFTER_ROTATE)
        with self.condition:
            if name not in self.files[subdir]:
                self.files[subdir].append(name)
            self._file = OpenFile(subdir, name, fd, end=FIRST_POS)
            self.condition.notify_all()

    def append(self, payload: Bytes, *, end: int, last_group_at: int, runs: Words) -> None:
        """Append event bytes; ``end`` is the end of the last whole transaction then. Retryable MR-2002, MR-2003."""
        file = self._current_file()
        fault_point(BEFORE_WRITE)
        view, at = payload.data, file.size
        file.size = WRITE_FAILED  # until the write is complete: nothing may follow a partial write
        with disk_errors(self.root):
            if is_armed(MID_WRITE):
                half = len(view) // 2
                write_all(self.disk, file.fd, view[:half], at)
                fault_point(MID_WRITE)
                view, at = view[half:], at + half
            write_all(self.disk, file.fd, view, at)
        fault_point(AFTER_WRITE)
        with self.condition:
            file.size = at + len(view)
            file.end = end
            file.note_group(last_group_at)
            if len(runs):
                self._pending_runs.append(runs.copy())
            if len(self._pending_runs) > PENDING_RUNS_MAX:
                self._fold_runs()
            self.condition.notify_all()
        self._sync_thread.count_written(len(payload))

    def cut_back(self) -> None:
        """Drop the written part of an unfinished source transaction: the server sends it again."""
        file = self._file
        if file is not None and self._current_file().size > file.end:
            with disk_errors(self.root):
                self.disk.truncate(file.fd, file.end)
            file.size = file.end

    # ---- inside ------------------------------------------------------------------------------------

    def _load(self) -> None:
        """List the files and recover the newest one. If recovery removes it, the preceding file is recovered."""
        for subdir in layout.list_subdirs(self.root, self.disk):
            remove_leftovers(self.root / str(subdir), self.disk)
            self.files[subdir] = layout.list_files(self.root / str(subdir), self.disk)
            self.notes.load(subdir)
        for subdir in sorted(self.files, key=lambda subdir: -subdir.seq):
            self._load_subdir(subdir)
        self._write_hints()

    def _close_loaded_file(self) -> None:
        """Close the file that ``_load`` opened: the constructor fails."""
        if self._file is not None:
            self.disk.close(self._file.fd)

    def _load_subdir(self, subdir: Subdir) -> None:
        names = self.files[subdir]
        while names and self._file is None:
            if not self._load_file(subdir, names[-1]):
                names.pop()
        if not names and layout.remove_subdir(self.root / str(subdir), self.disk):
            del self.files[subdir]

    def _load_file(self, subdir: Subdir, name: str) -> bool:
        path = self.root / str(subdir) / name
        unpack(path, self.disk)
        walked = recover_file(path, self.flavour, self.disk)
        if walked is None:
            return False
        fd = self.disk.open(path)
        self._file = OpenFile(subdir, name, fd, walked.end, walked.last_group_at)
        self._subdir, self._position = subdir, self.notes.with_before(subdir, walked.position)
        return True

    def _write_hints(self) -> None:
        """Rewrite the index and relay.meta if they disagree with the files. A disk error is only logged."""
        try:
            if layout.read_index(self.root, self.disk) != layout.index_text(self.files):
                layout.write_index(self.root, self.files, self.disk)
            if self._file is not None:
                file, directory = self._file, self.root / str(self._file.subdir)
                truth = Meta(file.name, file.end, str(self._fold_runs()))
                meta = layout.read_meta(directory, self.disk)
                if meta != truth:
                    if meta is not None:
                        self.disk.unlink(directory / layout.META_NAME)
                    layout.write_meta(directory, truth, is_durable=False, files=self.disk)
        except OSError as error:
            log.warning("index or relay.meta not written", directory=str(self.root), error=error)

    def _closed_end(self, at: Coordinates) -> int:
        """The size of a whole closed file, before its first read. Fatal MR-2004 if it is damaged, Retryable MR-2002.

        A file that was cut between two events looks whole. The previous GTIDs of the next file reveal the loss.
        """
        with disk_errors(self.root, at):
            walked = walk_file(self.path(at), self.flavour, self.disk)
        if walked is None:
            where = "in its head"
        elif not walked.is_whole:
            where = f"at {walked.walked_to}"
        else:
            before = self._position_before_next(at)
            if before is None or self.with_before(at.subdir, walked.position).includes(before):
                return walked.end
            where = f"at its end: {before} was executed before the next file"
        message = f"{at.subdir}/{at.file} is damaged {where}"
        raise Fatal("MR-2004", message, directory=self.root, coordinates=at)

    def _position_before_next(self, at: Coordinates) -> GtidPosition | None:
        """The GTIDs executed before the file with the next number, if there is one."""
        for subdir, name in self.list_files():
            following = Coordinates(str(subdir), name, FIRST_POS)
            if at.subdir == following.subdir and at.order[1] + 1 == following.order[1]:
                return self.position_before(following)
        return None

    def _current_file(self) -> OpenFile:
        self._check_usable()
        if self._file is None:
            raise Retryable("MR-2011", "no relay file is open", directory=self.root)
        return self._file

    def _check_usable(self) -> None:
        self._sync_thread.raise_failure()
        if self._file is not None and self._file.size == WRITE_FAILED:
            raise Retryable("MR-2002", "a write to the relay log failed", directory=self.root)

    def _fold_runs(self) -> GtidPosition:
        if self._position is None and self._file is not None:
            file = self._file
            self._position = self.position_before(
                Coordinates(str(file.subdir), file.name, FIRST_POS)
            )
        if self._position is None:
            return empty_position(self.flavour)
        for runs in self._pending_runs:
            self._position = advance_position(self._position, runs)
        self._pending_runs.clear()
        return self._position

    def _close_file(self) -> None:
        file = self._file
        if file is None:
            return
        try:
            self._sync_thread.raise_failure()
            with self._fd_lock:
                if file.size == WRITE_FAILED:
                    self.disk.truncate(file.fd, file.end)
                self._make_durable(file)
        except (OSError, Retryable):
            self._cut_to_durable(file)
            raise
        except BaseException:  # not a disk error: the bytes on disk are kept
            with suppress(OSError):
                self._release_file(file)
            raise
        try:
            self._write_meta(file, self.position(), is_durable=True)
        finally:
            self._release_file(file)

    def _release_file(self, file: OpenFile) -> None:
        with self.condition, self._fd_lock:
            self._closed_ends[str(file.subdir), file.name] = file.end
            self._file = None
            self.disk.close(file.fd)

    def _cut_to_durable(self, file: OpenFile) -> None:
        """Cut the file to its last synced end: after a failed fsync the kernel may drop the bytes after it."""
        with self.condition, self._fd_lock:
            self._file = None
            # The rest, perhaps without a head, is not damaged: reading it is retried after the next open.
            self._cut_file = str(file.subdir), file.name
            try:
                self.disk.truncate(file.fd, file.synced_end)
            finally:
                self.disk.close(file.fd)
        log.error("relay file cut back to its durable end", file=file.name, end=file.synced_end)

    def _sync(self) -> None:
        """Sync the file and replace relay.meta; runs in the sync thread. Retryable MR-2003 (file), MR-2002 (meta)."""
        with self.condition:
            file = self._file
            if file is None:
                return
            end = file.end
            is_meta_due = time.monotonic() - self._meta_at_s >= META_INTERVAL_S
            position = self._fold_runs() if is_meta_due else empty_position(self.flavour)
        with self._fd_lock:
            if self._file is not file:
                return
            fault_point(BEFORE_FSYNC)
            self._make_durable(file)
            fault_point(AFTER_FSYNC)
            file.synced_end = end
            note_durable(self.root, Coordinates(str(file.subdir), file.name, end), self.disk)
            if is_meta_due:
                with disk_errors(self.root):
                    self._write_meta(file, position, is_durable=False, end=end)

    def _make_durable(self, file: OpenFile) -> None:
        try:
            self.disk.sync(file.fd)
        except OSError as error:
            raise Retryable(
                "MR-2003", f"fsync of the relay log failed: {error.strerror}", file=file.name
            ) from error

    def _write_meta(
        self, file: OpenFile, position: GtidPosition, *, is_durable: bool, end: int | None = None
    ) -> None:
        fault_point(BEFORE_META)
        meta = Meta(file.name, file.end if end is None else end, str(position))
        with self._fd_lock:
            layout.write_meta(
                self.root / str(file.subdir), meta, is_durable=is_durable, files=self.disk
            )
        self._meta_at_s = time.monotonic()
