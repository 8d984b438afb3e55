"""Every judge of the simulation can fail: a correct history with one fault violates its invariant.

Real capture and real apply make the history over the models; the real code does nothing after the fault.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from unittest import mock

import pytest

from millrace.drivers.kafka.reader import TopicRecord
from millrace.errors import Fatal
from millrace.schemas.gtid import Flavour
from millrace.schemas.record.control import FenceRecord, ResolvedRecord
from millrace.schemas.record.record import KnownSchemas, RowRecord, decode_record
from tests.simulation import disk
from tests.simulation.apply import Cut
from tests.simulation.binlog import Binlog
from tests.simulation.gate import Process
from tests.simulation.judges import (
    TargetJudge,
    TopicJudge,
    ViolationError,
    check_relay,
    check_rows,
)
from tests.simulation.model_kafka import Entry, ModelTopic
from tests.simulation.model_target import ModelServer, ModelSession
from tests.simulation.source import TOTAL, Change
from tests.simulation.target_statements import STATEMENTS
from tests.simulation.world import APPLY_WORKERS, CAPTURE_WORKERS, EVERYTHING, LAST_CUT, World

LEDGER = "shop.ledger"
PROGRESS = "millrace.progress"


@pytest.fixture(params=Flavour)
def world(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[World]:
    """Two owners of the topic, one after the other; all records have arrived."""
    made = World(tmp_path, request.param)
    with made.running():
        for owner in CAPTURE_WORKERS:
            made.emit(["transfer", "note", "grow", "give code"], 1)
            made.step_capture(owner, EVERYTHING)
            made.lose_session(owner)
            made.notice_session_end(owner)
        for driver in APPLY_WORKERS:
            made.step_apply(driver, LAST_CUT)
        made.step_capture(CAPTURE_WORKERS[0], EVERYTHING)
        yield made
    made.close()


# ---- the topic -------------------------------------------------------------------------------------


Topic = tuple[list[TopicRecord], list[Change], Binlog]


def _read(records: Sequence[TopicRecord], published: Sequence[Change], binlog: Binlog) -> None:
    """A judge reads the changed topic from its beginning."""
    entries = [Entry(record.key, record.value, None) for record in records]
    TopicJudge(ModelTopic(entries), published, binlog).check()


def _topic(world: World) -> Topic:
    records = world.topic.committed(0, world.topic.high)
    return records, list(world.source.changes), world.source.binlog


def _places(records: Sequence[TopicRecord], kind: type) -> list[int]:
    known = KnownSchemas()
    decoded = [decode_record(record.key, record.value, known) for record in records]
    return [at for at, record in enumerate(decoded) if isinstance(record, kind)]


def _a_row_is_missing(world: World) -> None:
    records, published, binlog = _topic(world)
    del records[_places(records, RowRecord)[3]]
    _read(records, published, binlog)


def _a_row_comes_twice(world: World) -> None:
    records, published, binlog = _topic(world)
    _read([*records, records[_places(records, RowRecord)[-1]]], published, binlog)


def _a_number_is_left_out(world: World) -> None:
    records, published, binlog = _topic(world)
    del records[_places(records, RowRecord)[3]], published[3]
    _read(records, published, binlog)


def _a_row_is_of_another_transaction(world: World) -> None:
    records, published, binlog = _topic(world)
    published[0] = replace(published[0], number=2)
    _read(records, published, binlog)


def _a_transaction_has_no_last_row(world: World) -> None:
    records, published, binlog = _topic(world)
    first_transaction = [change for change in published if change.number == 1]
    del records[_places(records, RowRecord)[len(first_transaction) - 1]]
    _read(records, [*first_transaction[:-1], *published[len(first_transaction) :]], binlog)


def _an_older_owner_writes(world: World) -> None:
    records, published, binlog = _topic(world)
    _read([*records, records[_places(records, FenceRecord)[0]]], published, binlog)


def _resolved_before_it_is_delivered(world: World) -> None:
    records, published, binlog = _topic(world)
    at = _places(records, ResolvedRecord)[0]
    records[at - 1 : at + 1] = records[at], records[at - 1]
    _read(records, published, binlog)


def _resolved_too_early(world: World) -> None:
    records, published, binlog = _topic(world)
    _read(records, [*published, replace(published[-1], number=1)], binlog)


def _resolved_with_a_gap(world: World) -> None:
    records, published, binlog = _topic(world)
    with mock.patch.object(type(binlog), "executed", return_value=""):
        _read(records, published, binlog)


# ---- the target ------------------------------------------------------------------------------------


def _session(world: World) -> ModelSession:
    return ModelSession(world.target, Process("hand"))


def _the_mark_goes_back(world: World) -> None:
    session = _session(world)
    ((place, row),) = session.all(PROGRESS).items()
    session.put(place, (row[0], int(row[1]) - 1, int(row[2]) - 1, *row[3:]))
    session.commit_now()


def _a_row_goes_back(world: World) -> None:
    session = _session(world)
    place, row = next(iter(session.all(LEDGER).items()))
    session.put(place, (*row[:-1], 0))
    session.commit_now()


def _money_is_lost(world: World) -> None:
    target = ModelServer(STATEMENTS, version=world.target.version)
    account = {"id": 1, "code": None, "amount": TOTAL - 1, "version": 1}
    TargetJudge(target, [Change(1, 1, "accounts", after=account)])
    session = ModelSession(target, Process("hand"))
    session.insert("shop.accounts", tuple(account.values()))
    session.insert(PROGRESS, ("task", 1, 1, "", "", "", 0, 0))
    session.commit_now()


# ---- at rest ---------------------------------------------------------------------------------------


def _relay_files(world: World) -> list[Path]:
    return disk.all_files(world.surroundings.root / CAPTURE_WORKERS[0])


def _a_relay_file_differs(world: World) -> None:
    end = world.captures[CAPTURE_WORKERS[0]].relay_end
    assert end is not None
    (path,) = _relay_files(world)
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    check_relay(world.source, [path], end)


def _a_relay_log_ends_in_a_transaction(world: World) -> None:
    end = world.captures[CAPTURE_WORKERS[0]].relay_end
    assert end is not None
    check_relay(world.source, _relay_files(world), end.at(end.pos - 1))


def _spoil(world: World) -> None:
    """A row of the target is lost without a commit."""
    del world.target.rows[next(place for place in world.target.rows if place[0] == LEDGER)]


def _the_target_lacks_a_row(world: World) -> None:
    _spoil(world)
    check_rows(world.source, world.target)


def _reading_again_changes_rows(world: World) -> None:
    with mock.patch.object(world, "read_again", side_effect=lambda _: _spoil(world)):
        world.come_to_rest()


def _a_backup_does_not_get_far(world: World) -> None:
    with mock.patch.object(world, "read_again"):
        world.come_to_rest()


def _a_backup_leads_elsewhere(world: World) -> None:
    read_again, runs = world.read_again, iter((False, True))

    def spoiled(cut: Cut) -> None:
        read_again(cut)
        if next(runs):
            _spoil(world)

    with mock.patch.object(world, "read_again", spoiled):
        world.come_to_rest()


def _a_worker_is_blocked(world: World) -> None:
    damage = Fatal("MR-2004", "damage")
    with mock.patch.object(world.captures[CAPTURE_WORKERS[0]], "step", side_effect=damage):
        world.step_capture(CAPTURE_WORKERS[0], EVERYTHING)


def _nothing_arrives(world: World) -> None:
    world.emit(["transfer"], 1)
    with mock.patch.object(world, "step_capture"):
        world.come_to_rest()


WRONG: tuple[tuple[str, Callable[[World], None]], ...] = (
    ("I1: offset .* holds", _a_row_is_missing),
    ("I1: .* is not in the binlog", _a_row_comes_twice),
    ("I2: seq", _a_number_is_left_out),
    ("I3: .* is row", _a_row_is_of_another_transaction),
    ("I3: the last row", _a_transaction_has_no_last_row),
    ("I4: epoch", _an_older_owner_writes),
    ("I5: .* differs", _a_relay_file_differs),
    ("I5: .* is inside", _a_relay_log_ends_in_a_transaction),
    ("I6: seq .* is resolved", _resolved_before_it_is_delivered),
    ("I6: .* too early", _resolved_too_early),
    ("I6: .* had executed", _resolved_with_a_gap),
    ("I6: .* after", _the_mark_goes_back),
    ("I7: ", _the_target_lacks_a_row),
    ("I8: seqs", _a_row_goes_back),
    ("I8: .* at seq", _money_is_lost),
    ("I9: a run that reads again", _reading_again_changes_rows),
    ("I9: .* after a backup", _a_backup_does_not_get_far),
    ("I9: from a backup on", _a_backup_leads_elsewhere),
    ("I10: w1 is blocked: MR-2004", _a_worker_is_blocked),
    ("I10: .* arrived", _nothing_arrives),
)


@pytest.mark.parametrize(
    ("what", "spoil"), WRONG, ids=[spoil.__name__.strip("_") for _, spoil in WRONG]
)
def test_broken_history_is_reported_by_its_invariant(
    world: World, what: str, spoil: Callable[[World], None]
) -> None:
    """The judge names the invariant and the reason; without the fault it reports nothing."""
    _read(*_topic(world))
    with pytest.raises(ViolationError, match=rf"^{what}"):
        spoil(world)


def test_correct_history_violates_no_invariant(world: World) -> None:
    """The history runs to its end, is read again, and is resumed from a backup."""
    world.come_to_rest()


def test_each_invariant_has_a_judge_that_can_fail() -> None:
    """The invariants are I1 to I10 of the threats."""
    assert {what.partition(":")[0] for what, _ in WRONG} == {
        f"I{number}" for number in range(1, 11)
    }
