"""The disk fails at each operation, or the power fails after it: the relay log is a prefix and can be continued."""

import shutil
import tempfile
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from operator import itemgetter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from millrace.errors import Fatal, Retryable
from millrace.producer.binlog.gtid_runs import new_runs
from millrace.producer.relay import layout
from millrace.producer.relay import writer as relay_log
from millrace.producer.relay.durable_end import DURABLE_NAME
from millrace.producer.relay.writer import RelayLog
from millrace.schemas.gtid import Flavour
from tests.fixtures.sweep import Sweep
from tests.kit.relay.disk import Fault, FaultyFiles, Op, Tree, crash_states, write_tree
from tests.kit.relay.relay import read_everything
from tests.kit.relay.writer import NAMES, REFUSED, StepSync, Writer, three_files, whole_ends

FILES = three_files()
ENDS = {name: whole_ends(content) for name, content in FILES.items()}
# No single crash leaves all of this: whole files, a torn one, one without a head, an empty sub-directory.
WHOLE_TO = ENDS[NAMES[1]][-3]  # the first of its two source transactions
LEFT_BY_CRASHES: Tree = {
    "server-a.000001": None,
    f"server-a.000001/{NAMES[0]}": FILES[NAMES[0]],
    f"server-a.000001/{NAMES[1]}": FILES[NAMES[1]][: WHOLE_TO + 50],
    "server-a.000001/relay.meta": b"old",
    "server-b.000002": None,
    f"server-b.000002/{NAMES[2]}": FILES[NAMES[2]][:30],
    "server-c.000003": None,
    "server-c.000003/relay.before": b"\n",
}


@pytest.fixture(autouse=True)
def one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """No sync thread: each run of a writer makes the same operations in the same order."""
    monkeypatch.setattr(relay_log, "SyncThread", StepSync)
    monkeypatch.setattr(relay_log, "META_INTERVAL_S", 0.0)


def visible(root: Path) -> dict[str, bytes]:
    """The contents that a reader sees, by file, after the log was opened; relay.meta and the index must agree."""
    disk = FaultyFiles(root)
    relay = RelayLog.open(root, flavour=Flavour.MYSQL, disk=disk)
    end = relay.end()
    try:
        seen = read_everything(relay) if end is not None else {}
        assert layout.read_index(root) == layout.index_text(relay.files)
        if end is not None:
            meta = layout.read_meta(root / end.subdir)
            assert meta is not None
            assert (meta.binlog_name, meta.binlog_pos) == (end.file, end.pos)
            assert meta.binlog_gtid == str(relay.position())
    finally:
        relay.close()
    assert not disk.open_fds
    return {key.partition("/")[2]: payload for key, payload in seen.items()}


def assert_prefix(seen: dict[str, bytes], *, first: str | None = None) -> None:
    """``seen`` must be consecutive source files; only the last may be cut, after a whole source transaction."""
    names = list(FILES)
    if not seen:
        return
    begin = names.index(next(iter(seen)))
    assert list(seen) == names[begin : begin + len(seen)]
    for name in list(seen)[:-1]:
        assert seen[name] == FILES[name][4:]
    last, payload = list(seen.items())[-1]
    assert FILES[last][4:].startswith(payload)
    assert len(payload) + 4 in ENDS[last]


def assert_resumes(root: Path) -> None:
    """A writer continues the log to the same bytes."""
    Writer(root, FILES, FaultyFiles(root)).run()
    seen = visible(root)
    assert_prefix(seen)
    assert list(seen)[-1] == list(FILES)[-1]
    assert seen[list(FILES)[-1]] == FILES[list(FILES)[-1]][4:]


def open_files(folder: Path) -> list[str]:
    """The files below a folder that this process has open; sockets of other tests may vanish meanwhile."""
    targets = []
    for descriptor in Path("/proc/self/fd").iterdir():
        with suppress(FileNotFoundError):
            targets.append(str(descriptor.readlink()))
    return [target for target in targets if target.startswith(str(folder))]


@dataclass(frozen=True)
class Work:
    """A writer's work on a disk that first holds ``found``. No contents up to ``kept`` may be lost."""

    run: Callable[[FaultyFiles], None]
    found: Tree | None = None
    kept: tuple[str, int] | None = None  # the last file and its length

    def begin(self, root: Path, **fault: Any) -> FaultyFiles:
        """The disk for the work."""
        if self.found is not None:
            write_tree(root, self.found)
        return FaultyFiles(root, **fault)

    def record(self, root: Path) -> FaultyFiles:
        """A run without a fault."""
        disk = self.begin(root)
        self.run(disk)
        return disk

    def opening(self, root: Path) -> int:
        """The number of operations that opening the log takes."""
        disk = self.begin(root)
        relay = RelayLog.open(root, flavour=Flavour.MYSQL, disk=disk)
        count = len(disk.ops)
        relay.close()
        return count

    def assert_kept(self, seen: dict[str, bytes]) -> None:
        """``seen`` must begin with the first file and reach ``kept``."""
        if self.kept is not None:
            name, end = self.kept
            assert next(iter(seen)) == next(iter(FILES))
            last, payload = list(seen.items())[-1]
            assert (last, len(payload) + 4) >= (name, end), (last, len(payload) + 4)


WRITTEN = Work(lambda disk: Writer(disk.root, FILES, disk).run(with_purge=True))
INTERRUPTED = Work(lambda disk: Writer(disk.root, FILES, disk, is_interrupted=True).run())
DROPPED = Work(lambda disk: Writer(disk.root, FILES, disk, drops=True).run())
FOUND = Work(
    lambda disk: Writer(disk.root, FILES, disk).run(),
    LEFT_BY_CRASHES,
    (NAMES[1], WHOLE_TO),
)


@pytest.mark.parametrize("is_lasting", [False, True], ids=["once", "from-then-on"])
@pytest.mark.parametrize(
    ("work", "operations"),
    [
        (WRITTEN, {"create", "write", "sync", "replace", "unlink", "remove_directory"}),
        (INTERRUPTED, {"truncate"}),
        (DROPPED, {"unlink", "remove_directory", "sync", "open", "read_into"}),
        (FOUND, {"truncate", "unlink", "remove_directory", "size", "read_into", "sync"}),
    ],
    ids=["written", "interrupted", "dropped", "found"],
)
@pytest.mark.guarantee("relay log")
def test_any_failing_disk_operation_leaves_whole_transactions(
    memory_path: Path, work: Work, operations: set[str], is_lasting: bool, sweep: Sweep
) -> None:
    """An error code of the disk, no open file, whole transactions; after the repair, the same bytes.

    Tried on a log that is written from the start and purged, on one whose source transactions arrive in two attempts,
    on one that drops the sub-directory of a refused server, and on one opened after crashes: a torn tail, a file
    without a head, an empty sub-directory.
    """
    record, opening = work.record(memory_path / "record"), work.opening(memory_path / "opening")
    reported: Counter[str] = Counter()
    for number, fault in faults_of(record, opening, sweep):
        op = record.ops[number]
        root = memory_path / f"{number}-{fault.name}"
        disk = work.begin(root, fail_at=number, fault=fault, is_lasting=is_lasting)
        error = error_of(work, disk)
        assert disk.has_failed, (op, fault)
        if fault is Fault.SHORT:
            assert error is None, (op, error)
        elif error is not None:
            assert error.code in codes_of(
                op, is_opened=number >= opening, may_follow=is_lasting or work is DROPPED
            ), (op, fault, error)
            reported[op.name] += 1
        else:
            assert not must_report(record.ops, number, fault, opening=opening), (op, fault)
        assert not disk.open_fds, (op, fault)
        if root.exists():
            seen = visible(root)
            assert_prefix(seen)
            work.assert_kept(seen)
        assert_resumes(root)
        shutil.rmtree(root)
    assert open_files(memory_path) == []
    assert reported.keys() >= operations


def faults_of(record: FaultyFiles, opening: int, sweep: Sweep) -> list[tuple[int, Fault]]:
    """The faults to try: (number of the operation, fault).

    A part of them still has each operation on each kind of file, with each fault, in the opening and after it.
    """

    def kind(case: tuple[int, Fault]) -> object:
        number, fault = case
        op = record.ops[number]
        file = op.path.rpartition("/")[2].rstrip("0123456789")
        return op.name, file, fault, number >= opening

    pairs = [(n, fault) for n in range(len(record.ops)) for fault in record.applicable(n)]
    return sweep(pairs, every=20, kind=kind)


def test_log_ended_by_bad_content_leaves_no_open_file(memory_path: Path) -> None:
    """A GTID sequence that goes back ends the sync thread with Fatal; the file keeps its bytes."""
    disk = FaultyFiles(memory_path)
    files = {NAMES[0]: three_files(mariadb=True)[NAMES[0]]}
    writer = Writer(memory_path, files, disk, mariadb=True, is_split=False)
    relay = RelayLog.open(memory_path, flavour=Flavour.MARIADB, disk=disk)
    writer.append_files(relay)
    end = relay.end()
    assert end is not None
    goes_back = new_runs()[:1]  # sequence 0 of domain 0

    def go_back() -> None:
        for _ in range(
            4
        ):  # the sync thread checks at every third write, and the next write raises its error
            relay.append(np.zeros(1, np.uint8), end=end.pos, last_group_at=0, runs=goes_back)

    with pytest.raises(Fatal, match="MR-6002"):
        go_back()
    with suppress(Fatal):
        relay.close()
    assert not disk.open_fds
    assert open_files(memory_path) == []
    assert relay.path(end).read_bytes().startswith(files[NAMES[0]])


def error_of(work: Work, disk: FaultyFiles) -> Retryable | None:
    """The error that ended a run; any other error type fails the test."""
    try:
        work.run(disk)
    except Retryable as error:
        return error
    return None


def codes_of(op: Op, *, is_opened: bool, may_follow: bool) -> set[str]:
    """A failed fsync of the current file has its own code; all other operations have the disk's.

    ``may_follow``: truncating may fail too, or the file is opened again after a drop.
    """
    if is_opened and op.name == "sync" and is_binlog(op.path):
        return {"MR-2003", "MR-2002"} if may_follow else {"MR-2003"}
    return {"MR-2002"}


def is_binlog(path: str) -> bool:
    """Whether this is the path of a binlog file."""
    return path.rpartition("/")[2] in FILES


def must_report(ops: list[Op], number: int, fault: Fault, *, opening: int) -> bool:
    """Whether a fault at this operation must raise an error, at once or at the next write.

    Not after the last write, where the log is only closed; not for hints at the start, nor for a full disk there; not
    for the note of the durable end, nor when relay.meta is read again after a drop, because both are hints.
    """
    is_meta = ops[number].path.endswith(layout.META_NAME)
    if ops[number].path == DURABLE_NAME or (is_meta and ops[number].name in _READS):
        return False
    last = max(at for at, op in enumerate(ops) if op.name == "write" and is_binlog(op.path))
    hints = next(at for at, op in enumerate(ops) if op.path == layout.INDEX_NAME)
    op = ops[number]
    is_hint_read = op.path.endswith(layout.META_NAME) and op.name != "unlink"
    is_for_room = op.name == "write" and fault is not Fault.IO_ERROR
    return opening <= number <= last or (number < hints and not is_hint_read and not is_for_room)


_READS = {"open", "size", "read_into", "close"}  # relay.meta is written under another name


@pytest.mark.guarantee("relay log")
def test_power_cut_leaves_a_prefix_that_can_be_resumed(memory_path: Path, sweep: Sweep) -> None:
    """After every operation, with every legal loss: whole transactions, a correct relay.meta, the same bytes later."""
    record = WRITTEN.record(memory_path / "record")
    count = check_crash_states(memory_path, record.ops, sweep, resume_every=9)
    assert count > 80


@pytest.mark.guarantee("relay log")
def test_power_cut_never_joins_a_dropped_subdir(memory_path: Path, sweep: Sweep) -> None:
    """After every operation of a drop, with every legal loss: what is left of the sub-directory is apart."""
    found = 0
    states = crash_states(DROPPED.record(memory_path / "record").ops)
    for number, (_, tree) in enumerate(sweep(states, every=12, kind=itemgetter(0))):
        root = memory_path / f"cut-{number}"
        write_tree(root, tree)
        relay = RelayLog.open(root, flavour=Flavour.MYSQL)
        for subdir in relay.files:
            if subdir.server == REFUSED:
                found += 1
                assert relay.notes.is_apart(subdir), "what a power cut left is not apart"
        relay.close()
        shutil.rmtree(root)
    assert found > 10


@pytest.mark.parametrize("number", range(3))
def test_failed_fsync_then_power_cut_leaves_a_prefix(
    memory_path: Path, number: int, sweep: Sweep
) -> None:
    """The data of a failed fsync counts as lost even if the file looks complete: it is written again."""
    record = WRITTEN.record(memory_path / "record")
    syncs = [at for at, op in enumerate(record.ops) if op.name == "sync"]
    root = memory_path / "run"
    disk = FaultyFiles(root, fail_at=syncs[len(syncs) * (number + 1) // 4])
    error_of(WRITTEN, disk)
    assert disk.has_failed
    Writer(root, FILES, disk).run()
    begin = disk.fail_at or 0
    check_crash_states(memory_path / "cut", disk.ops, sweep, begin=begin, resume_every=50)


@pytest.mark.parametrize("number", range(4))
def test_failed_fsync_and_failed_truncate_leave_a_prefix(
    memory_path: Path, number: int, sweep: Sweep
) -> None:
    """If the disk continues to fail or the process dies, the next open trusts only relay.meta."""
    ops = WRITTEN.record(memory_path / "record").ops
    syncs = [at for at, op in enumerate(ops) if op.name == "sync" and is_binlog(op.path)]
    root = memory_path / "run"
    disk = FaultyFiles(root, fail_at=syncs[number + 1], is_lasting=True)
    error_of(WRITTEN, disk)
    assert disk.ops[syncs[number + 1]].name == "sync_failed"
    disk.heal()
    begin = len(disk.ops)
    Writer(root, FILES, disk).run()
    check_crash_states(memory_path / "cut", disk.ops, sweep, begin=begin, resume_every=50)


def test_failed_fsync_at_start_then_power_cut_leaves_a_prefix(
    memory_path: Path, sweep: Sweep
) -> None:
    """Data that a killed process had not made durable counts as lost even if the file looks complete."""
    record = killed(memory_path / "record")
    killed_at = len(record.ops)
    RelayLog.open(record.root, flavour=Flavour.MYSQL, disk=record).close()
    sync = next(at for at, op in enumerate(record.ops) if at >= killed_at and op.name == "sync")
    disk = killed(memory_path / "run")
    disk.fail_at = sync
    with pytest.raises(Retryable, match="MR-2002"):
        RelayLog.open(disk.root, flavour=Flavour.MYSQL, disk=disk)
    assert disk.ops[sync] == Op("sync_failed", f"server-a.000001/{NAMES[1]}")
    disk.heal()
    begin = len(disk.ops)
    Writer(disk.root, FILES, disk).run()
    check_crash_states(memory_path / "cut", disk.ops, sweep, begin=begin, resume_every=50)


def test_relay_meta_never_points_past_a_truncated_file(memory_path: Path) -> None:
    """At any failing operation of the open: otherwise later data at that place would count as durable."""
    path = f"server-a.000001/{layout.META_NAME}"
    claim = f'binlog-name = "{NAMES[1]}"\nbinlog-pos = {WHOLE_TO + 50}\nbinlog-gtid = ""\n'
    work = Work(
        lambda disk: RelayLog.open(disk.root, flavour=Flavour.MYSQL, disk=disk).close(),
        {**LEFT_BY_CRASHES, path: claim.encode()},
    )
    for number in range(len(work.record(memory_path / "record").ops)):
        disk = work.begin(memory_path / f"{number}", fail_at=number)
        error_of(work, disk)
        meta = layout.read_meta((disk.root / path).parent)
        size_bytes = (disk.root / path).with_name(NAMES[1]).stat().st_size
        assert meta is None or meta.binlog_pos <= size_bytes, disk.ops[number]


def killed(root: Path) -> FaultyFiles:
    """A writer killed after the last source transaction of the second file, which is not durable yet."""
    disk = FaultyFiles(root)
    files = {NAMES[0]: FILES[NAMES[0]], NAMES[1]: FILES[NAMES[1]][: ENDS[NAMES[1]][-2]]}
    relay = RelayLog.open(root, flavour=Flavour.MYSQL, disk=disk)
    Writer(root, files, disk, is_split=False).append_files(relay)
    disk.abandon()
    return disk


def check_crash_states(
    folder: Path, ops: list[Op], sweep: Sweep, *, resume_every: int, begin: int = 0
) -> int:
    """Check states after a power cut and resume every ``resume_every``-th; returns their number.

    A part of them still has one after each operation.
    """
    states = [(done, tree) for done, tree in crash_states(ops) if done > begin]
    chosen = sweep(states, every=12, kind=itemgetter(0))
    for count, (_, tree) in enumerate(chosen, 1):
        root = folder / f"cut-{count}"
        write_tree(root, tree)
        assert_honest(tree)
        try:
            assert_prefix(visible(root))
        except Fatal as error:
            raise AssertionError(f"a power cut made damage: {error}") from error
        if count % resume_every == 0:
            assert_resumes(root)
        shutil.rmtree(root)
    return len(chosen)


def assert_honest(tree: Tree) -> None:
    """A readable relay.meta at the end of the log names a position up to which the file is present and correct."""
    written = [path for path in tree if is_binlog(path)]
    if not written:
        return
    folder = max(written, key=lambda path: path.rpartition(".")[2]).partition("/")[0]
    with tempfile.TemporaryDirectory() as scratch:
        (Path(scratch) / "relay.meta").write_bytes(tree.get(f"{folder}/relay.meta") or b"")
        meta = layout.read_meta(Path(scratch))
    if meta is not None:
        file = tree.get(f"{folder}/{meta.binlog_name}") or b""
        is_right = file[: meta.binlog_pos] == FILES[meta.binlog_name][: meta.binlog_pos]
        assert is_right, f"relay.meta claims missing data: {meta}"
