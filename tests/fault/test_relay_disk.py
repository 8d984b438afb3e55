"""A disk that fails at every single operation, and a power cut behind each: the relay log is a prefix, and goes on."""

import shutil
import tempfile
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

from millrace.errors import Fatal, MillraceError, Retryable
from producer.relay import layout
from producer.relay import log as relay_log
from producer.relay.log import RelayLog
from producer.relay.runs import new_runs
from schemas.gtid import Flavour
from tests.relay import read_everything
from tests.relay_disk import Fault, FaultyFiles, Op, Tree, crash_states, lay_tree
from tests.relay_writer import NAMES, StepSync, Writer, three_files, whole_ends

FILES = three_files()
ENDS = {name: whole_ends(content) for name, content in FILES.items()}


@pytest.fixture(autouse=True)
def one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs of the same writer make the same operations in the same order."""
    monkeypatch.setattr(relay_log, "SyncThread", StepSync)
    monkeypatch.setattr(relay_log, "META_INTERVAL_S", 0.0)


def recorded(root: Path) -> FaultyFiles:
    """A run in which nothing goes wrong."""
    disk = FaultyFiles(root)
    Writer(root, FILES, disk).run(with_purge=True)
    return disk


def visible(root: Path) -> dict[str, bytes]:
    """What a reader sees, by file, after the log was opened; relay.meta and index agree with it then."""
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
    """Consecutive files of the source, all but the last whole, the last cut at a whole source transaction."""
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


def assert_goes_on(root: Path) -> None:
    """To the same bytes."""
    Writer(root, FILES, FaultyFiles(root)).run()
    seen = visible(root)
    assert_prefix(seen)
    assert list(seen)[-1] == list(FILES)[-1]
    assert seen[list(FILES)[-1]] == FILES[list(FILES)[-1]][4:]


def open_files(folder: Path) -> list[str]:
    """What this process has open below a folder; sockets of other tests come and go."""
    targets = []
    for descriptor in Path("/proc/self/fd").iterdir():
        with suppress(FileNotFoundError):
            targets.append(str(descriptor.readlink()))
    return [target for target in targets if target.startswith(str(folder))]


@pytest.mark.parametrize("is_lasting", [False, True], ids=["once", "from-then-on"])
def test_any_operation_of_the_disk_may_fail(memory_path: Path, is_lasting: bool) -> None:
    """A code of the disk, no descriptor left, whole transactions left; the disk mended: the same bytes."""
    record = recorded(memory_path / "record")
    told = 0
    for number, op in enumerate(record.ops):
        for fault in record.applicable(number):
            if is_lasting and fault is not Fault.NO_SPACE:
                continue
            root = memory_path / f"{number}-{fault.name}"
            disk = FaultyFiles(root, fail_at=number, fault=fault, is_lasting=is_lasting)
            error = error_of(Writer(root, FILES, disk))
            assert error is None or isinstance(error, Retryable), (op, fault, error)
            assert error is None or error.code in codes_of(op), (op, fault, error)
            assert error is not None or fault is Fault.SHORT or not must_tell(record, number)
            assert not disk.open_fds, (op, fault)
            told += error is not None
            if root.exists():
                assert_prefix(visible(root))
            assert_goes_on(root)
    assert open_files(memory_path) == []
    assert told > (30 if is_lasting else 100)


def test_a_log_that_ends_by_what_its_bytes_say_leaves_no_descriptor(memory_path: Path) -> None:
    """A sequence that goes back ends the sync thread with a Fatal; the file stays as it came."""
    disk = FaultyFiles(memory_path)
    files = {NAMES[0]: three_files(mariadb=True)[NAMES[0]]}
    writer = Writer(memory_path, files, disk, mariadb=True, is_split=False)
    relay = RelayLog.open(memory_path, flavour=Flavour.MARIADB, disk=disk)
    writer.go_on(relay)
    end = relay.end()
    assert end is not None
    goes_back = new_runs()[:1]  # sequence 0 of domain 0

    def go_back() -> None:
        for _ in range(4):  # at every third the sync thread looks, and the next write is told
            relay.append(np.zeros(1, np.uint8), end=end.pos, last_group_at=0, runs=goes_back)

    with pytest.raises(Fatal, match="MR-6002"):
        go_back()
    with suppress(Fatal):
        relay.close()
    assert not disk.open_fds
    assert open_files(memory_path) == []
    assert relay.path(end).read_bytes().startswith(files[NAMES[0]])


def error_of(writer: Writer) -> MillraceError | None:
    """What a run ended with."""
    try:
        writer.run(with_purge=True)
    except MillraceError as error:
        return error
    return None


def codes_of(op: Op) -> tuple[str, ...]:
    """A failed fsync of the file being written says so (at start it is the disk's); all else is the disk's."""
    return ("MR-2003", "MR-2002") if op.name == "sync" and is_binlog(op.path) else ("MR-2002",)


def is_binlog(path: str) -> bool:
    """The path of a binlog file."""
    return path.rpartition("/")[2] in FILES


def must_tell(record: FaultyFiles, number: int) -> bool:
    """The writer has to be told at once, or at its next write; behind the last one the log is only closed."""
    last = max(at for at, op in enumerate(record.ops) if op.name == "write" and is_binlog(op.path))
    op = record.ops[number]
    return op.name in ("create", "write", "sync") and is_binlog(op.path) and number <= last


def test_after_a_power_cut_a_prefix_is_left_that_goes_on(memory_path: Path) -> None:
    """Behind every operation, with every legal loss: whole transactions, relay.meta claims no more, the same bytes."""
    record = recorded(memory_path / "record")
    count = check_crash_states(memory_path, record.ops, go_on_every=9)
    assert count > 200


@pytest.mark.parametrize("number", range(3))
def test_after_a_failed_fsync_and_a_power_cut_a_prefix_is_left(
    memory_path: Path, number: int
) -> None:
    """What the failed fsync was for is lost for good, however right the file looks: it is written again."""
    syncs = [at for at, op in enumerate(recorded(memory_path / "record").ops) if op.name == "sync"]
    root = memory_path / "run"
    disk = FaultyFiles(root, fail_at=syncs[len(syncs) * (number + 1) // 4])
    error_of(Writer(root, FILES, disk))
    assert disk.has_failed
    Writer(root, FILES, disk).run()
    check_crash_states(memory_path / "cut", disk.ops, begin=disk.fail_at or 0, go_on_every=50)


def check_crash_states(folder: Path, ops: list[Op], *, go_on_every: int, begin: int = 0) -> int:
    """How many were looked at; every ``go_on_every``-th is written on."""
    count = 0
    for done, tree in crash_states(ops):
        if done <= begin:
            continue
        count += 1
        root = folder / f"cut-{count}"
        lay_tree(root, tree)
        assert_honest(tree)
        try:
            assert_prefix(visible(root))
        except Fatal as error:
            raise AssertionError(f"a power cut made damage: {error}") from error
        if count % go_on_every == 0:
            assert_goes_on(root)
        shutil.rmtree(root)
    return count


def assert_honest(tree: Tree) -> None:
    """relay.meta where the log ends, if it can be read, names a place up to which the file is there and right."""
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
        assert is_right, f"relay.meta claims what is not there: {meta}"
