"""The stage of a snapshot in its task's status: rate, ETA and why it waits."""

from collections import deque

from millrace.cli.task.snapshot import progress_of
from millrace.producer.snapshot.chunk_read import ReadRequest
from millrace.producer.snapshot.ended_snapshots import History
from millrace.producer.snapshot.insertion_plan import Answer, Course, NamesRequest
from millrace.producer.snapshot.inserts import SnapshotInserts
from millrace.producer.snapshot.reader import ChunkReader, SnapshotSource
from millrace.producer.snapshot.requests import TaskWishes
from millrace.producer.snapshot.task import TaskSnapshots
from millrace.producer.source.connection import Login
from millrace.schemas.documents import ApplyTask, CaptureTask, Member, SetDocument, TableFilter
from millrace.schemas.gtid import Flavour, parse_gtid_set
from millrace.schemas.plain import from_plain, to_plain
from millrace.schemas.record.control import Origin
from millrace.schemas.snapshot import Name, SnapshotState, TablePlace
from millrace.schemas.stages import SnapshotStage
from tests.kit.alone import Alone
from tests.kit.relay.relay import UNVERIFIED

POSITION = parse_gtid_set(Flavour.MARIADB, "0-1-7")
NAMES: dict[Name, int] = {("shop", "a"): 900, ("shop", "b"): 1000, ("shop", "c"): 500}


class Sets(Alone):
    """Those of no cluster."""

    def set_document(self, name: str) -> SetDocument:
        raise AssertionError(name)

    def capture_task_of(self, task: ApplyTask) -> CaptureTask:
        raise AssertionError(task)


class Listed:
    """``Reads`` that lists the tables, and reads nothing."""

    def __init__(self) -> None:
        self.answers: deque[Answer] = deque()

    def ask_names(self, request: NamesRequest) -> None:
        self.answers.append(Answer(request.run, names=NAMES))

    def ask(self, request: ReadRequest) -> None:
        assert request.name == ("shop", "b")

    def take(self) -> Answer | None:
        return self.answers.popleft() if self.answers else None


def snapshots_in(where: str) -> TaskSnapshots:
    """In the second of three tables, with 400 of its rows published."""
    at = TablePlace(("shop", "b"), is_open=True, after=("4",), chunks=2, rows=400)
    state = SnapshotState("initial", ("shop.*",), where, at)
    wishes = TaskWishes(Sets(), "t", lambda: state, deque())
    wishes.look()
    course = Course(state, Listed(), wishes)
    for _ in range(2):
        course.next_insertion(POSITION, is_near=True)
    origin = Origin(Flavour.MARIADB, "t", "s")
    login = Login(user="u", password="p", tls=UNVERIFIED)
    source = SnapshotSource(origin, login, lambda: Member("h", 1), TableFilter(), lambda _: "")
    inserts = SnapshotInserts(course, History.since(state), set_name="s")
    return TaskSnapshots(inserts, ChunkReader(source), wishes)


def test_eta_comes_from_the_rate_and_the_estimated_rows() -> None:
    """Those of the table under way that are left, and of the tables after it."""
    snapshots = snapshots_in("")
    first = snapshots.stage(at_s=10.0)
    assert first is not None
    assert (first.eta_s, first.rates.over_10_s) == (None, None)
    snapshots.inserts.history.rows += 50
    stage = snapshots.stage(at_s=15.0)
    assert stage is not None
    assert (stage.tables, stage.done, stage.rows) == (2, 0, 400)
    assert (stage.rates.over_10_s, stage.eta_s) == (10.0, (1000 - 400 + 500) / 10.0)


def test_snapshot_with_a_condition_has_no_eta() -> None:
    """The rows that match are not known."""
    snapshots = snapshots_in("a > 1")
    snapshots.stage(at_s=10.0)
    snapshots.inserts.history.rows += 50
    stage = snapshots.stage(at_s=15.0)
    assert stage is not None
    assert (stage.rates.over_10_s, stage.eta_s) == (10.0, None)


def test_pause_is_the_reason_in_the_status() -> None:
    """With the limit that is exceeded."""
    snapshots = snapshots_in("")
    snapshots.reader.paused = "a lag of 40 s, max_lag_s is 30"
    stage = snapshots.stage(at_s=1.0)
    assert stage is not None
    assert stage.why == "pauses: a lag of 40 s, max_lag_s is 30"
    assert snapshots.pause == "a lag of 40 s, max_lag_s is 30"


def test_list_names_the_tables_before_the_first_row_is_read() -> None:
    """The patterns that were asked for; the counts come when the tables are known."""
    stage = snapshots_in("a > 1").stage(at_s=1.0)
    assert stage is not None
    assert (stage.asked, stage.where) == (("shop.*",), "a > 1")
    assert from_plain(SnapshotStage, to_plain(stage)) == stage
    assert progress_of(SnapshotStage(id="s", why="begins")) == "begins"
    known = SnapshotStage(id="s", table="shop.t", tables=1, done=0, rows=1, why="reads")
    assert progress_of(known) == "0 of 1 table, shop.t: 1 row; reads"
