"""An operator's decision: its progress, its gap record, and the decisions that are refused."""

from dataclasses import replace
from functools import partial

import pytest

from millrace.errors import Fatal
from millrace.producer.publish.decision import (
    TopicLook,
    adopt,
    adopted_progress,
    must_execute,
    reset,
    skip,
)
from millrace.schemas.gtid import (
    Flavour,
    GtidSet,
    History,
    MariadbGtidSet,
    parse_binlog_state,
    parse_gtid,
    parse_gtid_set,
)
from millrace.schemas.progress import OpenTransaction, Progress
from millrace.schemas.record.control import DdlRecord, RecordKind
from millrace.schemas.record.gap import gap_of, gap_record
from millrace.schemas.record.record import decode_control, encode_control
from millrace.schemas.requests.decision import (
    Approval,
    Decision,
    DecisionKind,
    decision_of,
    decision_to_plain,
    missing_between,
)
from millrace.schemas.sql.statement import Kind, classify

UUID = "3e11fa47-71ca-11e1-9e33-c80aa9429562"
APPROVAL = Approval("ann@db-ops", "logged without its rows", 1_790_000_000_000)


def at(text: str, *, seq: int = 7, opened: OpenTransaction | None = None) -> Progress:
    """A topic's progress."""
    flavour = Flavour.MYSQL if ":" in text else Flavour.MARIADB
    return Progress(parse_gtid_set(flavour, text), opened, seq)


def decided(
    before: Progress, after: str, kind: DecisionKind = DecisionKind.RESET_POSITION
) -> Decision:
    """A decision on ``before``."""
    gtid_set = parse_gtid_set(before.gtid_set.flavour, after)
    return Decision(
        id="d1", kind=kind, task="shop", before=before, after=gtid_set, approval=APPROVAL
    )


def history(text: str, state: str = "") -> History:
    """A primary's history."""
    flavour = Flavour.MYSQL if ":" in text else Flavour.MARIADB
    return History(parse_gtid_set(flavour, text), parse_binlog_state(state))


@pytest.mark.parametrize(
    ("before", "after", "missing", "gtid"),
    [
        (f"{UUID}:1-6", f"{UUID}:1-7", f"{UUID}:7", f"{UUID}:7"),
        (f"{UUID}:1-6", f"{UUID}:1-9:blue:1-2", f"{UUID}:7-9:blue:1-2", f"{UUID}:blue:2"),
        ("0-1-6", "0-1-7", "0-1-7", "0-1-7"),
        ("0-1-6", "0-1-9", "the transactions after 0-1-6 up to 0-1-9", "0-1-9"),
        (
            "0-1-6,1-1-5",
            "0-2-9,1-1-5,3-1-2",
            "the transactions after 0-1-6 up to 0-2-9, the transactions up to 3-1-2",
            "3-1-2",
        ),
        ("0-1-6", "0-1-6", "", "0-1-6"),
        (f"{UUID}:1-6", f"{UUID}:1-6", "", f"{UUID}:6"),
    ],
)
def test_decision_names_what_is_missing(before: str, after: str, missing: str, gtid: str) -> None:
    """The gap record has a source transaction that is missing, or the last one if none is."""
    found = decided(at(before), after)
    assert (found.missing, found.gtid, found.number) == (missing, gtid, 1)
    assert missing_between(found.before, found.after) == missing
    assert found.result == at(after, seq=8)


def test_gap_record_ends_the_open_source_transaction() -> None:
    """Two rows are published, so the gap is its third record and its last."""
    before = at("0-1-6", opened=OpenTransaction("0-1-7", 2))
    record = gap_record(decided(before, "0-1-7"), set_name="shop")
    place = record.transaction
    assert (place.gtid, place.total_order, place.is_last) == ("0-1-7", 3, True)
    assert record.source.seq == 8


def test_gap_record_decodes_as_a_statement_that_no_reader_executes() -> None:
    """Its text is a comment in every line, whatever the operator typed; the session has the parts."""
    reason = "two\nlines; DROP TABLE t\r-- x"
    decision = replace(decided(at("0-1-6"), "0-1-7"), approval=Approval("a@b", reason, 0))
    value = encode_control(gap_record(decision, set_name="shop"), schema_id=3)
    record = decode_control(value)
    assert isinstance(record, DdlRecord)
    assert all(line.startswith("-- ") for line in record.statement.sql.splitlines())
    assert classify(record.statement.sql, "").kind is Kind.UNKNOWN
    assert record.statement.session["in_doubt"]
    gap = gap_of(record)
    assert gap is not None
    assert (gap.decision, gap.kind, gap.reason) == ("d1", "reset-position", reason)
    assert gap.missing == "0-1-7"
    assert RecordKind.DDL.value == "ddl"


@pytest.mark.parametrize("opened", [None, OpenTransaction("0-1-7", 2)])
def test_decision_survives_zookeeper(opened: OpenTransaction | None) -> None:
    """All fields, with and without an open source transaction."""
    decision = decided(at("0-1-6", opened=opened), "0-1-9")
    assert decision_of(decision_to_plain(decision), origin="tasks/shop") == decision
    assert decision_of(None, origin="tasks/shop") is None


@pytest.mark.parametrize(
    "changed",
    [{"kind": "guess"}, {"after": "x"}, {"after": ""}, {"seq": None}, {"flavour": "oracle"}],
)
def test_garbage_in_a_decision_is_refused(changed: dict[str, object]) -> None:
    """MR-4011, as for any malformed node."""
    plain = decision_to_plain(decided(at("0-1-6"), "0-1-9"))
    with pytest.raises(Fatal, match="MR-4011"):
        decision_of(plain | changed, origin="tasks/shop")
    with pytest.raises(Fatal, match="MR-4011"):
        decision_of([], origin="tasks/shop")


def test_decision_is_executed_once_and_only_on_its_progress() -> None:
    """The same progress: now. Its result with its record: no more. Any other, even its result: MR-3022."""
    decision = decided(at("0-1-6"), "0-1-7")
    assert must_execute(decision, at("0-1-6"), last_decision=lambda: "")
    assert not must_execute(decision, at("0-1-7", seq=8), last_decision=lambda: "d1")
    others = (at("0-1-6", seq=8), at("0-1-7", seq=9), at("0-1-8", seq=8), at("0-2-6"))
    opened = at("0-1-6", opened=OpenTransaction("0-1-7", 1))
    for other in (*others, opened):
        with pytest.raises(Fatal, match="MR-3022"):
            must_execute(decision, other, last_decision=lambda: "d1")
    for last in ("", "d2"):
        with pytest.raises(Fatal, match="MR-3022"):
            must_execute(decision, at("0-1-7", seq=8), last_decision=partial(str, last))


def test_topic_is_adopted_only_with_the_reported_progress() -> None:
    """A status that moved since is another progress than the one that the operator saw."""
    decision = decided(at("0-1-6"), "0-1-6", DecisionKind.ADOPT_TOPIC)
    assert adopted_progress(decision, reported=None) == at("0-1-6")
    assert adopted_progress(decision, reported=at("0-1-6")) == at("0-1-6")
    assert adopted_progress(decision, reported=at("0-1-7")) is None
    assert adopted_progress(decided(at("0-1-6"), "0-1-7"), reported=None) is None
    assert adopted_progress(None, reported=at("0-1-6")) is None


# ---- which decisions are refused -------------------------------------------------------------------


def test_skipped_transaction_must_be_executed_and_not_delivered() -> None:
    """MySQL: any of these. A later transaction under a skipped GTID would be lost in silence."""
    primary = history(f"{UUID}:1-20")
    before = at(f"{UUID}:1-6")
    assert str(skip_mysql(before, 9, primary)) == f"{UUID}:1-6:9"
    for number in (6, 21):
        with pytest.raises(Fatal, match="MR-4184"):
            skip_mysql(before, number, primary)
    with pytest.raises(Fatal, match="MR-4184"):
        skip_mysql(at_the_beginning(), 1, primary)


def skip_mysql(before: Progress, number: int, primary: History) -> object:
    """Skip one transaction of the MySQL source."""
    gtid = parse_gtid(Flavour.MYSQL, f"{UUID}:{number}")
    return skip(before, gtid, history=primary, following=None)


def at_the_beginning() -> Progress:
    """The topic has its first fence."""
    return Progress(GtidSet(), None, 0)


@pytest.mark.parametrize("following", ["0-1-8", "0-2-7", None])
def test_skipped_mariadb_transaction_must_be_the_next_of_its_domain(following: str | None) -> None:
    """A position counts everything before it as done."""
    before, gtid = at("0-1-6"), parse_gtid(Flavour.MARIADB, "0-1-7")
    primary = history("0-1-20")
    assert str(skip(before, gtid, history=primary, following=gtid)) == "0-1-7"
    other = parse_gtid(Flavour.MARIADB, following) if following else None
    with pytest.raises(Fatal, match="MR-4184"):
        skip(before, gtid, history=primary, following=other)


def test_only_the_open_transaction_can_be_skipped() -> None:
    """Its first rows are in the topic, and its gap record ends it."""
    before = at(f"{UUID}:1-6", opened=OpenTransaction(f"{UUID}:7", 2))
    primary = history(f"{UUID}:1-20")
    assert str(skip_mysql(before, 7, primary)) == f"{UUID}:1-7"
    with pytest.raises(Fatal, match="MR-4184"):
        skip_mysql(before, 8, primary)


@pytest.mark.parametrize(
    ("before", "wanted", "state"),
    [
        (f"{UUID}:1-6", f"{UUID}:1-5", ""),
        (f"{UUID}:1-6", f"{UUID}:2-9", ""),
        (f"{UUID}:1-6", f"{UUID}:1-6", ""),
        (f"{UUID}:1-6", f"{UUID}:1-21", ""),
        ("0-1-6", "0-1-5", "0-1-20"),
        ("0-1-6", "0-2-6", "0-1-20,0-2-20"),
        ("0-1-6,1-1-3", "0-1-9", "0-1-20,1-1-3"),
        ("0-1-6", "0-2-9", "0-1-20"),
        ("0-1-6", "0-1-21", "0-1-20"),
    ],
)
def test_position_is_reset_only_forward_and_to_executed_transactions(
    before: str, wanted: str, state: str
) -> None:
    """Back: rows would come twice. Ahead of the primary: later transactions would be missing in silence."""
    primary = history("0-1-20,1-1-3", state) if state else history(f"{UUID}:1-20")
    progress = at(before)
    gtid_set = parse_gtid_set(progress.gtid_set.flavour, wanted)
    with pytest.raises(Fatal, match="MR-4185"):
        reset(progress, gtid_set, history=primary, refusals={"db1:3306": ""})


def test_position_must_be_readable_from_a_member() -> None:
    """Otherwise the task would block again, after the gap is in the topic."""
    before, primary = at(f"{UUID}:1-6"), history(f"{UUID}:1-20")
    wanted = GtidSet.parse(f"{UUID}:1-9")
    refusals = {"db1:3306": "MR-1031 purged", "db2:3306": ""}
    assert reset(before, wanted, history=primary, refusals=refusals) == wanted
    with pytest.raises(Fatal, match=r"MR-4185.*db1:3306: MR-1031 purged"):
        reset(before, wanted, history=primary, refusals={"db1:3306": "MR-1031 purged"})


def test_position_must_contain_the_open_transaction() -> None:
    """The gap record ends it."""
    before = at("0-1-6,1-1-3", opened=OpenTransaction("1-1-4", 2))
    state = history("0-1-20,1-1-9", "0-1-20,1-1-9")
    with pytest.raises(Fatal, match="MR-4185"):
        reset(before, MariadbGtidSet.parse("0-1-9,1-1-3"), history=state, refusals={"a:1": ""})
    assert reset(before, MariadbGtidSet.parse("0-1-9,1-1-4"), history=state, refusals={"a:1": ""})


def test_only_a_topic_without_records_is_adopted() -> None:
    """And only if the progress is known from the status, or else from the operator."""
    gone, known = TopicLook(exists=False), at("0-1-6")
    assert adopt(gone, reported=known, given=None) == known
    assert adopt(gone, reported=None, given=known) == known
    assert adopt(TopicLook(exists=True), reported=known, given=known) == known
    unreadable = TopicLook(exists=True, unreadable=Fatal("MR-3011", "foreign"))
    for look, reported, given_ in (
        (TopicLook(exists=True, progress=known), known, None),
        (unreadable, known, None),
        (gone, known, at("0-1-7")),
        (gone, None, None),
        (gone, at("0-1-6", seq=0), None),
        (gone, at_the_beginning(), None),
    ):
        with pytest.raises(Fatal, match="MR-4186"):
            adopt(look, reported=reported, given=given_)
