"""File systems for the relay log's tests: one that fails operation number k, and the possible states after a power cut.

``FaultyFiles`` is the real disk with one fault. It records all operations (``ops``). From them ``crash_states`` makes
the directories that a power cut may leave, assuming only what POSIX promises:

    bytes       synced bytes are kept; of later writes: nothing, all, the first half (cut anywhere), zeros, or the last
                part without the first; data of a failed fsync is lost, although reads still show it
                all files alike, or all of one file and nothing of the others
    names       creations, renames and removals since the last fsync of their directory: none, all, or any one missing

Not done here: durable bytes that change by themselves (tests flip bits for that).
"""

import errno
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import TypeAlias

from millrace.producer.relay.files import Files

Tree: TypeAlias = Mapping[str, bytes | None]  # relative path -> content; None: a directory


class Fault(StrEnum):
    """A fault; each applies to the operations that ``FAULTS_OF`` names."""

    NO_SPACE = "ENOSPC"
    IO_ERROR = "EIO"
    SHORT = "short write"
    HALF = "half written, then ENOSPC"


FAULTS_OF: Mapping[str, tuple[Fault, ...]] = {
    "write": (Fault.NO_SPACE, Fault.IO_ERROR, Fault.SHORT, Fault.HALF),
    "create": (Fault.NO_SPACE, Fault.IO_ERROR),
    "make_directory": (Fault.NO_SPACE, Fault.IO_ERROR),
    "lock": (Fault.NO_SPACE, Fault.IO_ERROR),
    "replace": (Fault.NO_SPACE, Fault.IO_ERROR),
    "sync": (Fault.NO_SPACE, Fault.IO_ERROR),
}
OTHERWISE = (Fault.IO_ERROR,)  # reads, truncation, removal, listing, closing


@dataclass(frozen=True, slots=True)
class Op:
    """One operation; ``path`` below the root, ``payload`` of a write, ``to`` of a rename, ``number`` offset or size."""

    name: str
    path: str = ""
    payload: bytes = b""
    to: str = ""
    number: int = 0


@dataclass
class FaultyFiles(Files):
    """Raises ``fault`` at operation number ``fail_at`` (from 0); with ``is_lasting`` also at all later ones."""

    root: Path
    fail_at: int | None = None
    fault: Fault = Fault.IO_ERROR
    is_lasting: bool = False
    is_fast: bool = True  # no real fsync: the model decides what is durable
    ops: list[Op] = field(default_factory=list)
    open_fds: dict[int, Path] = field(default_factory=dict)
    has_failed: bool = False

    def heal(self) -> None:
        """Stop failing."""
        self.fail_at = None

    def applicable(self, number: int) -> tuple[Fault, ...]:
        """The faults that can hit the recorded operation."""
        op = self.ops[number]
        if op.name == "sync" and not _is_dirty(op.path, self.ops[:number]):
            return OTHERWISE
        if op.name == "write" and len(op.payload) == 1:  # one byte has no half
            return (Fault.NO_SPACE, Fault.IO_ERROR)
        return FAULTS_OF.get(op.name, OTHERWISE)

    def lock(self, path: Path) -> int:
        self._pass("open" if path.exists() else "lock", path)
        return self._opened(super().lock(path), path)

    def open(self, path: Path, *, is_new: bool = False, is_read_only: bool = False) -> int:
        self._pass("create" if is_new else "open", path)
        return self._opened(super().open(path, is_new=is_new, is_read_only=is_read_only), path)

    def close(self, fd: int) -> None:
        path = self.open_fds.pop(fd)
        super().close(fd)  # even if it raises, the descriptor is closed
        self._pass("close", path)

    def is_locked(self, path: Path) -> bool:
        self._pass("is_locked", path)
        return super().is_locked(path)

    def size(self, fd: int) -> int:
        self._pass("size", self.open_fds[fd])
        return super().size(fd)

    def read_into(self, fd: int, target: memoryview, offset: int) -> int:
        self._pass("read_into", self.open_fds[fd])
        return super().read_into(fd, target, offset)

    def write(self, fd: int, payload: memoryview, offset: int) -> int:
        if self._is_due() and self.fault in (Fault.SHORT, Fault.HALF) and len(payload) > 1:
            half = payload[: len(payload) // 2]
            self._note("write", self.open_fds[fd], payload=bytes(half), number=offset)
            if self.fault is Fault.HALF:
                self.fail_at, self.fault = len(self.ops), Fault.NO_SPACE
            else:
                self.has_failed = True
            return super().write(fd, half, offset)
        self._pass("write", self.open_fds[fd], payload=bytes(payload), number=offset)
        return super().write(fd, payload, offset)

    def truncate(self, fd: int, size: int) -> None:
        self._pass("truncate", self.open_fds[fd], number=size)
        super().truncate(fd, size)

    def sync(self, fd: int) -> None:
        path = self.open_fds[fd]
        try:
            self._pass("sync", path)
        except OSError:
            self.ops[-1] = Op("sync_failed", self._relative(path))
            raise
        if not self.is_fast:
            super().sync(fd)

    def sync_directory(self, directory: Path) -> None:
        self._pass("sync_directory", directory)
        if not self.is_fast:
            super().sync_directory(directory)

    def replace(self, path: Path, onto: Path) -> None:
        self._pass("replace", path, to=self._relative(onto))
        super().replace(path, onto)

    def unlink(self, path: Path) -> None:
        self._pass("unlink", path)
        super().unlink(path)

    def make_directory(self, directory: Path) -> None:
        self._pass("look" if directory.is_dir() else "make_directory", directory)
        super().make_directory(directory)

    def remove_directory(self, directory: Path) -> None:
        self._pass("remove_directory", directory)
        super().remove_directory(directory)

    def list_files(self, directory: Path) -> list[str]:
        self._pass("list_files", directory)
        return super().list_files(directory)

    def list_directories(self, directory: Path) -> list[str]:
        self._pass("list_directories", directory)
        return super().list_directories(directory)

    def modified_at_s(self, path: Path) -> float:
        self._pass("modified_at_s", path)
        return super().modified_at_s(path)

    def free_bytes(self, directory: Path) -> int:
        self._pass("free_bytes", directory)
        return super().free_bytes(directory)

    def abandon(self) -> None:
        """The process is killed: only its descriptors are closed."""
        for fd in list(self.open_fds):
            self.close(fd)

    # ---- inside ------------------------------------------------------------------------------------

    def _opened(self, fd: int, path: Path) -> int:
        self.open_fds[fd] = path
        return fd

    def _relative(self, path: Path) -> str:
        text = os.path.relpath(path, self.root)
        return "" if text == "." else text

    def _is_due(self) -> bool:
        if self.fail_at is None:
            return False
        number = len(self.ops)
        return number == self.fail_at or (self.is_lasting and number > self.fail_at)

    def _note(
        self, name: str, path: Path, *, payload: bytes = b"", to: str = "", number: int = 0
    ) -> None:
        self.ops.append(Op(name, self._relative(path), payload, to, number))

    def _pass(
        self, name: str, path: Path, *, payload: bytes = b"", to: str = "", number: int = 0
    ) -> None:
        is_due = self._is_due() and self.fault in FAULTS_OF.get(name, OTHERWISE)
        if name == "sync" and self.fault is Fault.NO_SPACE:
            is_due &= _is_dirty(self._relative(path), self.ops)
        if not is_due or self.fault is Fault.SHORT:
            self._note(name, path, payload=payload, to=to, number=number)
            return
        self.has_failed = True
        self._note(f"{name} failed", path)
        code = errno.EIO if self.fault is Fault.IO_ERROR else errno.ENOSPC
        raise OSError(code, os.strerror(code), str(path))


def _is_dirty(path: str, ops: list[Op]) -> bool:
    """Whether the file was written since the last sync: durable data needs no space."""
    names = (op.name for op in reversed(ops) if op.path == path)
    return next((name for name in names if name in ("write", "sync")), "") == "write"


# ---- power cuts --------------------------------------------------------------------------------------


@dataclass
class Inode:
    """A file: its durable bytes and later writes."""

    durable: bytes = b""
    pending: list[tuple[int, bytes | None]] = field(default_factory=list)  # None: truncated there

    def content(self, pending: list[tuple[int, bytes | None]] | None = None) -> bytes:
        """The durable bytes with these changes applied (all of them if not given)."""
        data = bytearray(self.durable)
        for at, payload in self.pending if pending is None else pending:
            if payload is None:
                del data[at:]
                continue
            data.extend(bytes(max(0, at - len(data))))
            data[at : at + len(payload)] = payload
        return bytes(data)


def _nothing(inode: Inode) -> bytes:
    return inode.durable


def _everything(inode: Inode) -> bytes:
    return inode.content()


def _first_half(inode: Inode) -> bytes:
    kept = inode.pending[: (len(inode.pending) + 1) // 2]
    if kept:
        at, payload = kept[-1]
        kept[-1] = (at, payload and payload[: len(payload) // 2])
    return inode.content(kept)


def _zeros(inode: Inode) -> bytes:
    return inode.content([(at, data and bytes(len(data))) for at, data in inode.pending])


def _last_without_first(inode: Inode) -> bytes:
    writes = [
        (at, data and (bytes(len(data)) if number == 0 else data))
        for number, (at, data) in enumerate(inode.pending)
    ]
    return inode.content(writes)


BYTES_LEFT: tuple[Callable[[Inode], bytes], ...] = (
    _nothing,
    _everything,
    _first_half,
    _zeros,
    _last_without_first,
)


def fates(names: Mapping[str, Inode | None]) -> Iterator[Callable[[Inode], bytes]]:
    """The possible fates of all dirty bytes; in the last ones only one file keeps its bytes."""
    yield from BYTES_LEFT
    dirty = [inode for inode in names.values() if inode is not None and inode.pending]
    for luckiest in dirty if len(dirty) > 1 else ():
        yield partial(_everything_of, luckiest)


def _everything_of(luckiest: Inode, inode: Inode) -> bytes:
    return _everything(inode) if inode is luckiest else _nothing(inode)


@dataclass(frozen=True, slots=True)
class Change:
    """One atomic change of a directory: removed and added names."""

    directory: str
    gone: tuple[str, ...]
    come: tuple[tuple[str, Inode | None], ...]

    def apply(self, names: dict[str, Inode | None]) -> None:
        """Apply it to these names."""
        for path in self.gone:
            names.pop(path, None)
        names.update(self.come)


@dataclass
class PowerModel:
    """The durable state after some operations, and the changes that may be lost."""

    names: dict[str, Inode | None] = field(default_factory=dict)  # as the process sees them
    durable_names: dict[str, Inode | None] = field(default_factory=dict)
    pending_names: list[Change] = field(default_factory=list)

    def apply(self, op: Op) -> None:
        """Apply one recorded operation."""
        match op.name:
            case "make_directory":
                if op.path not in self.names:
                    self._change(op.path, come=((op.path, None),))
            case "create" | "lock":
                known = self.names.get(op.path)
                if known is None:
                    self._change(op.path, come=((op.path, Inode()),))
                elif op.name == "create":
                    known.pending.append((0, None))
            case "write":
                self._inode(op.path).pending.append((op.number, op.payload))
            case "truncate":
                self._inode(op.path).pending.append((op.number, None))
            case "sync":
                inode = self._inode(op.path)
                inode.durable, inode.pending = inode.content(), []
            case "sync_failed":
                inode = self._inode(op.path)
                lost = [(at, data and bytes(len(data))) for at, data in inode.pending]
                inode.durable, inode.pending = inode.content(lost), []
            case "sync_directory":
                self._sync_names(op.path)
            case "replace":
                self._change(op.path, gone=(op.path,), come=((op.to, self._inode(op.path)),))
            case "unlink" | "remove_directory":
                if op.path in self.names:
                    self._change(op.path, gone=(op.path,))

    def states(self) -> Iterator[Tree]:
        """Every tree that a power cut may leave now: all dirty bytes share one fate, or only one file keeps them."""
        pending = self.pending_names
        choices = [[], pending, *([*pending[:k], *pending[k + 1 :]] for k in range(len(pending)))]
        seen: set[tuple[tuple[str, bytes | None], ...]] = set()
        for choice in choices:
            names = dict(self.durable_names)
            for change in choice:
                change.apply(names)
            for content_of in fates(names):
                tree = {
                    path: content_of(inode) if inode is not None else None
                    for path, inode in sorted(names.items())
                    if _parents_are_in(path, names)
                }
                key = tuple(tree.items())
                if key not in seen:
                    seen.add(key)
                    yield tree

    def _inode(self, path: str) -> Inode:
        inode = self.names[path]
        assert inode is not None, path
        return inode

    def _change(
        self,
        path: str,
        *,
        gone: tuple[str, ...] = (),
        come: tuple[tuple[str, Inode | None], ...] = (),
    ) -> None:
        change = Change(str(Path(path).parent), gone, come)
        change.apply(self.names)
        self.pending_names.append(change)

    def _sync_names(self, directory: str) -> None:
        wanted = directory or "."
        for change in self.pending_names:
            if change.directory == wanted:
                change.apply(self.durable_names)
        self.pending_names = [each for each in self.pending_names if each.directory != wanted]


def _parents_are_in(path: str, names: Mapping[str, Inode | None]) -> bool:
    return all(str(parent) in names for parent in Path(path).parents if str(parent) != ".")


def crash_states(ops: list[Op]) -> Iterator[tuple[int, Tree]]:
    """(number of operations done, tree) for each possible power cut in a run; each different tree once."""
    model = PowerModel()
    seen: set[int] = set()
    for number, op in enumerate(ops):
        if op.path != "" or op.name != "make_directory":  # the root itself exists
            model.apply(op)
        for tree in model.states():
            key = hash(tuple(tree.items()))
            if key not in seen:
                seen.add(key)
                yield number + 1, tree


def write_tree(root: Path, tree: Tree) -> None:
    """Create the directory."""
    root.mkdir(parents=True)
    for path, content in tree.items():
        if content is None:
            (root / path).mkdir()
        else:
            (root / path).write_bytes(content)
