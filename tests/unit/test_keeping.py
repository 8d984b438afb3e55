"""What is kept of a stack whose test failed: on one of files, and of processes that only tell what is done to them."""

import socket
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pluggy
import pytest

from deploy.services import APPLY_TASK, CAPTURE_TASK
from millrace.home import ENVIRONMENT
from tests import keeping
from tests.fix_stack import FaultStack, pytest_runtest_call
from tests.keeping import KEPT_MAX, PIECE_BYTES, keep

KEPT_FILES = {
    "worker/log": b"words",
    "relay/uuid.000001/mysql-bin.000001": b"relayed",
    "kafka/data/topic-0/00000000000000000000.log": b"records",
    "zookeeper/data/version-2/log.1": b"nodes",
    "source/server-1/log": b"words",
    "source/server-1/data/mysql-bin.000001": b"logged",
    "target/data/shop/orders.ibd": b"rows",
    "target/data/ib_logfile0": b"\0" * PIECE_BYTES + b"redo" + b"\0" * (PIECE_BYTES + 7),
    "target/data/empty": b"",
}
SERVERS = ("kafka", "zookeeper", "source", "target")
RUNNERS = ("worker", "apply")
LEFT_OUT_FILES = {
    "secrets/shop": b"password",
    "spark/blockmgr-1/0": b"scratch",
    "source/server-1/data/ibdata1": b"rows",
    "source/server-1/data/shop/orders.ibd": b"rows",
}


@dataclass
class Process:
    """Tells ``events`` what it is asked, and how many files had been copied then; may be one that can't be paused."""

    name: str
    events: list[tuple[str, str, int]]
    home: Path
    is_lost: bool = False
    is_up: bool = True

    def pause(self) -> None:
        """SIGSTOP."""
        self.tell("pause")
        if self.is_lost:
            raise ProcessLookupError(self.name)

    def resume(self) -> None:
        """SIGCONT."""
        self.tell("resume")

    def is_alive(self) -> bool:
        """As it was set."""
        return self.is_up

    def start(self) -> None:
        """It was down."""
        self.tell("start")
        self.is_up = True

    def stop(self) -> None:
        """In order."""
        self.tell("stop")
        self.is_up = False

    def kill(self) -> None:
        """SIGKILL."""
        self.tell("kill")
        self.is_up = False

    @property
    def process(self) -> "Process":
        """Of a server: itself."""
        return self

    def tell(self, what: str) -> None:
        """It was done."""
        copied = sum(path.is_file() for path in self.home.rglob("*"))
        self.events.append((what, self.name, copied))


@dataclass
class Stack:
    """A folder, processes, and the home that is kept in; what is done to a whole stack is told, too."""

    folder: Path
    home: Path
    events: list[tuple[str, str, int]] = field(default_factory=list)

    def process(self, name: str, *, is_lost: bool = False) -> Process:
        """One more."""
        return Process(name, self.events, self.home, is_lost)

    def keep(self, failure: BaseException, *, is_lost: bool = False, name: str = "test") -> None:
        """Of two processes, the second of which may be lost."""
        processes = [self.process("a"), self.process("b", is_lost=is_lost)]
        keep(failure, self.folder, cast(Any, processes), name=name)

    def tell(self, what: str, name: str) -> None:
        """As a process does."""
        self.process(name).tell(what)

    @property
    def done(self) -> list[tuple[str, str]]:
        """What, and to whom."""
        return [(what, name) for what, name, _ in self.events]

    @property
    def kept(self) -> list[Path]:
        """The folders, the oldest first."""
        return sorted((self.home / "failed").iterdir())


@pytest.fixture
def stack(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Stack:
    """Its files are there."""
    monkeypatch.setenv(ENVIRONMENT, str(tmp_path / "home"))
    for name, octets in {**KEPT_FILES, **LEFT_OUT_FILES}.items():
        path = tmp_path / "stack" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(octets)
    made = Stack(tmp_path / "stack", tmp_path / "home")

    def launch(broken: FaultStack, name: str) -> None:
        broken.services[name] = cast(Any, made.process(name))
        made.tell("launch", name)

    monkeypatch.setattr(FaultStack, "launch", launch)
    monkeypatch.setattr(FaultStack, "expire", lambda _, process: made.tell("expire", process.name))
    return made


def _files(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


def _notes(failure: BaseException) -> list[str]:
    return list(getattr(failure, "__notes__", ()))


def test_what_tells_of_a_failure_is_kept_while_everything_stands_still(
    stack: Stack, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Logs, relay log, binlogs, broker, the target whole; the failure says where."""
    monkeypatch.chdir(stack.folder / "target")
    listening = socket.socket(socket.AF_UNIX)
    listening.bind("s")
    listening.close()
    failure = AssertionError("a row is missing")
    stack.keep(failure, name="test_it[publisher.after/commit]")
    (kept,) = stack.kept
    assert kept.name.endswith("-test_it-publisher.after-commit-")
    assert _notes(failure) == [f"kept in {kept}"]
    assert _files(kept) == KEPT_FILES
    count = len(KEPT_FILES)
    assert stack.events == [
        ("pause", "a", 0),
        ("pause", "b", 0),
        ("resume", "b", count),
        ("resume", "a", count),
    ]


def test_zeros_take_no_room(stack: Stack) -> None:
    """Of what a server lays out beforehand."""
    big = stack.folder / "target/data/undo"
    big.write_bytes(b"\0" * 16 * PIECE_BYTES)
    stack.keep(AssertionError())
    kept = (stack.kept[0] / "target/data/undo").stat()
    assert kept.st_size == 16 * PIECE_BYTES > 512 * 8 * kept.st_blocks


def test_the_last_failures_are_kept_and_each_once(stack: Stack) -> None:
    """A campaign of many does not fill the disk; who kept something for a failure does not do it again."""
    failures = [AssertionError(number) for number in range(KEPT_MAX + 2)]
    for number, failure in enumerate(failures):
        stack.keep(failure, name=f"t{number}")
        stack.keep(failure, name="again")
    assert [path.name[-2:] for path in stack.kept] == ["t2", "t3", "t4"]
    assert all(len(_notes(failure)) == 1 for failure in failures)


@pytest.mark.parametrize("what", ["a process is gone", "a full disk", "no home"])
def test_what_goes_wrong_with_it_is_a_note_and_the_failure_stays_the_failure(
    stack: Stack, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    """Nothing is raised, and whoever was stopped goes on."""

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    if what == "a full disk":
        monkeypatch.setattr(keeping, "_copy", full)
    if what == "no home":
        monkeypatch.setenv(ENVIRONMENT, str(stack.folder / "worker/log/home"))
    failure = AssertionError("a row is missing")
    stack.keep(failure, is_lost=what == "a process is gone")
    words = {
        "a process is gone": "ProcessLookupError('b')",
        "a full disk": "No space left on device",
        "no home": "MR-8008",
    }
    assert _notes(failure)[-1].startswith("not all was kept: ")
    assert words[what] in _notes(failure)[-1]
    stopped, resumed = (
        {name for did, name, _ in stack.events if did == asked} for asked in ("pause", "resume")
    )
    assert stopped == resumed


def _ran(
    stack: Stack, failure: BaseException | None, *, is_down: bool = False, beside: str = ""
) -> pluggy.Result[None]:
    """A test of a stack of four servers and two services has run, and one more that it may have started beside."""
    servers = {name: stack.process(name) for name in SERVERS}
    servers["kafka"].is_up = not is_down
    local = SimpleNamespace(
        folder=stack.folder,
        kafka=servers["kafka"],
        zookeeper=servers["zookeeper"],
        source=SimpleNamespace(primary=servers["source"], replicas=()),
        target=servers["target"],
        try_command=lambda *words: stack.tell("millrace", " ".join(words)),
    )
    services = {name: stack.process(name) for name in (*RUNNERS, *filter(None, [beside]))}
    broken = FaultStack(cast(Any, local), cast(Any, services))
    item = SimpleNamespace(name="test_it", funcargs={"fault_stack": broken})

    def call() -> None:
        if failure is not None:
            raise failure

    outcome = pluggy.Result.from_call(call)
    hook = pytest_runtest_call(cast(Any, item))
    next(hook)
    with pytest.raises(StopIteration):
        hook.send(outcome)
    assert broken.not_whole() == ()
    return outcome


def test_a_failed_test_of_a_stack_leaves_what_was_there_before_it_is_mended(stack: Stack) -> None:
    """Its failure says where; a server that it left down is started behind the copy."""
    failure = AssertionError("a row is missing")
    outcome = _ran(stack, failure, is_down=True)
    assert outcome.exception is failure
    assert _files(stack.kept[0]) == KEPT_FILES
    mended = [(name, copied) for what, name, copied in stack.events if what in ("start", "launch")]
    assert mended == [(name, len(KEPT_FILES)) for name in ("kafka", *RUNNERS)]


def test_a_stack_serves_the_next_test_whatever_a_failed_one_has_left_running(stack: Stack) -> None:
    """A driver that hangs is alive and would fail all that follow, and so would a server that stands still, a frozen
    owner, a wrong document, a paused task."""
    failure = AssertionError("a row is missing")
    failure.add_note(
        "kept in another place"
    )  # so that nothing is copied, and nobody told to go on for that
    _ran(stack, failure, beside="worker-second")
    assert stack.done[: len(SERVERS)] == [("resume", name) for name in SERVERS]
    for name in RUNNERS:
        killed, freed, begun = (
            stack.done.index((what, name)) for what in ("kill", "expire", "launch")
        )
        assert killed < freed < begun
    assert ("kill", "worker-second") in stack.done
    assert ("expire", "worker-second") in stack.done
    files = ("set", "shop"), ("set", "warehouse"), ("task", CAPTURE_TASK), ("task", APPLY_TASK)
    assert [told for what, told in stack.done if what == "millrace"] == [
        *(f"{kind} create -f {stack.folder}/{name}.yaml --replace" for kind, name in files),
        *(f"task resume {task}" for task in (CAPTURE_TASK, APPLY_TASK)),
    ]


def test_a_test_that_leaves_something_down_fails_and_is_kept_one_that_does_not_is_not(
    stack: Stack,
) -> None:
    """What died by itself is in a log that a new start may write over; what runs is left alone."""
    assert _ran(stack, None).exception is None
    assert not (stack.home / "failed").exists()
    assert stack.done == []
    failure = _ran(stack, None, is_down=True).exception
    assert str(failure) == "left down or behind: kafka"
    assert failure is not None
    assert _notes(failure) == [f"kept in {stack.kept[0]}"]
