"""A target in memory that refuses some changes by their seq, and keeps them aside with all that follow.

The real ``PartAside``, ``RowWriter.write_carefully``, ``replay`` and ``hash_again`` work on it. An operator replays
chains between target transactions, also while a turn is under way. ``Tables`` refuses a change that comes too
early or too late, and the changes that were made must be all but the kept ones.
"""

import pickle
import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import count
from typing import Any, cast

import pytest

from millrace.consumer.kernel.walk import SEQ
from millrace.consumer.records.numbers import RecordNumbers
from millrace.consumer.records.rows import Rows
from millrace.consumer.target.progress import Owner
from millrace.consumer.turn.order import Outcome
from millrace.consumer.write import conflict, resolve_conflict, row_versions, target_transaction
from millrace.consumer.write.aside import AsideRule, hash_again
from millrace.consumer.write.row_writer import RowWriter
from millrace.drivers.mysql.connection import MySqlSession
from millrace.errors import Fatal, Retryable
from millrace.schemas.gtid import Flavour
from tests.kit.apply.history import RefusedError, make_history
from tests.kit.apply.model import (
    ENDPOINT,
    ModelSession,
    ModelTarget,
    ModelWriter,
    State,
    model_patched,
    one_turn,
    plans_of,
    run_randomly,
)
from tests.kit.apply.model_spread import one_spread_turn, spread_patched

NOT_EQUAL = "other rows than those that are not kept"
OTHER_KEYS = "other keys of kept rows"
OTHER_END = "other rows after the replays"
KEPT = AsideRule(keeps_refused=True, follows=True)

_names = count(1)


@dataclass
class AsideState(State):
    """With the tables of kept rows: by seq, and keys by hash and seq."""

    conflicts: dict[int, tuple[object, ...]] = field(default_factory=dict)
    kept: dict[int, tuple[object, ...]] = field(default_factory=dict)
    keys: dict[tuple[int, int], int] = field(default_factory=dict)

    def copy(self) -> "AsideState":
        """A copy for one target transaction."""
        return replace(
            cast(AsideState, super().copy()),
            conflicts=dict(self.conflicts),
            kept=dict(self.kept),
            keys=dict(self.keys),
        )


@dataclass
class AsideTarget(ModelTarget):
    """``refused``: the seqs of changes that it refuses, until ``is_fixed``."""

    refused: frozenset[int] = frozenset()
    is_fixed: bool = False
    mixes_folds: bool = False  # a share of a spread turn may know no folds


class AsideSession(ModelSession):
    """With the statements about kept rows."""

    target: AsideTarget
    flavour: Flavour

    def __enter__(self) -> "AsideSession":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def query(self, sql: str, arguments: tuple[object, ...] = ()) -> list[tuple[object, ...]]:
        """See ``ModelSession``."""
        work: AsideState = cast(AsideState, self.work)
        given: Any = arguments
        match " ".join(sql.split()[:5]).replace("millrace.", ""):
            case "SAVEPOINT millrace_row":
                self._row = work.copy()
            case "ROLLBACK TO SAVEPOINT millrace_row":
                self._work = self._row.copy()
            case "SELECT seq FROM aside WHERE":
                return [(seq,) for seq in list(work.kept)[:1]]
            case "SELECT COUNT(*), CAST(COALESCE(SUM(bytes), 0) AS":
                return [(len(work.kept), 0)]
            case "SELECT hash, seq, is_shared FROM":
                wanted = set(given[1]) if len(given) > 1 else None
                return [
                    (*at, is_shared)
                    for at, is_shared in work.keys.items()
                    if wanted is None or at[0] in wanted
                ]
            case "REPLACE INTO aside VALUES (%s,":
                work.kept[given[1]] = given[2:]
            case "INSERT INTO aside_key VALUES (%s,":
                raise AssertionError(sql)
            case "INSERT INTO aside_key VALUES %s," | "INSERT INTO aside_key VALUES %s":
                for _, value, seq, is_shared in given:
                    assert (value, seq) not in work.keys
                    work.keys[value, seq] = is_shared
            case "DELETE FROM aside_part WHERE task":
                pass  # every record is small
            case "DELETE FROM aside_key WHERE task":
                work.keys = {at: mode for at, mode in work.keys.items() if at[1] not in given[1]}
            case "DELETE FROM aside WHERE task":
                work.kept = {seq: row for seq, row in work.kept.items() if seq not in given[1]}
            case "SELECT seq, database_name, table_name, target_database,":
                return [(seq, *row) for seq, row in sorted(work.kept.items())]
            case "SELECT c.seq, c.op, c.record, c.schema_text":
                found = [seq for seq in sorted(work.kept) if seq > given[1]][:3]
                return [(seq, *(work.conflicts[seq][at] for at in (4, 7, 9))) for seq in found]
            case "SELECT run FROM fence WHERE":
                return [(work.run,)]
            case "SELECT seq FROM progress WHERE":
                return [(work.mark.seq,)]
            case "SELECT task, seq, gtid, table_name,":
                row = work.conflicts.get(given[1])
                return [] if row is None else [(*row[:5], row[6], row[5], "", "", row[7], None)]
            case "SELECT COALESCE(c.schema_text, s.schema_text) FROM conflict":
                return [(work.conflicts[given[2]][9],)]
            case _:
                return super().query(sql, arguments)
        return []

    def run(self, sql: bytes) -> int:
        """See ``ModelSession``."""
        what, given = pickle.loads(sql)
        work = cast(AsideState, self.work)
        if what == "REPLACE":
            work.conflicts[given[1]] = given
            return 1
        if what == "DELETE":
            return int(work.conflicts.pop(given[1], None) is not None)
        return super().run(sql)


class AsideWriter(RowWriter):
    """The real ``write_carefully``; batches and single rows go to the model."""

    def write(self, rows: Rows, numbers: RecordNumbers) -> None:
        """See ``RowWriter``."""
        session = cast(AsideSession, self._connection)
        for number in numbers:
            self._check_taken(session.target, int(rows.records[number, SEQ]))
        ModelWriter(session, self._plans, None).write(rows, numbers)

    def _write_one(self, rows: Rows, single: Any) -> int:
        session = cast(AsideSession, self._connection)
        seq = int(rows.records[single.number, SEQ])
        change = session.target.history.changes[seq]
        try:
            session.work.tables.apply(*change)
        except RefusedError:
            raise Fatal("MR-5019", f"{change} is refused") from None
        session.work.done |= {seq}
        self._check_taken(session.target, seq)  # the row is half written
        return 1

    def _check_unchanged(self, *_: object) -> None:
        """Nothing alters the tables."""

    def _check_taken(self, target: AsideTarget, seq: int) -> None:
        if seq in target.refused and not target.is_fixed:
            raise Fatal("MR-5011", f"the target refuses seq {seq}")

    def _set_foreign_key_checks(self, *, wanted: bool) -> None:
        """The model has none."""

    def _set_constraint_checks(self, *, wanted: bool) -> None:
        """The model has none."""

    def settle(self) -> None:
        """There is nothing to settle."""
        self.conflicts.clear()


def _patched(patch: pytest.MonkeyPatch, target: AsideTarget) -> None:
    model_patched(patch, target)
    spread_patched(patch, target)
    patch.setattr(target_transaction, "RowWriter", AsideWriter)
    patch.setattr(resolve_conflict, "RowWriter", AsideWriter)
    patch.setattr(conflict, "rows_in_the_way", lambda *_: "")
    patch.setattr(row_versions.VersionWriter, "restore", lambda _: None)
    patch.setattr(resolve_conflict, "open_session", lambda *_: AsideSession(target))
    patch.setattr(resolve_conflict, "read_inventory", lambda _: plans_of(target).inventory)


def _replay_any(target: AsideTarget, task: str) -> None:
    """An operator has corrected the target and replays the chain of a kept row."""
    state, chance = cast(AsideState, target.state), target.chance
    if not state.kept:
        return
    seq = chance.choice(sorted(state.kept))
    target.is_fixed, before = True, target.switch
    target.switch = list
    try:
        done = resolve_conflict.replay(ENDPOINT, task, seq)
        assert seq in done
    except Retryable:
        pass  # its commit was lost, or its answer
    finally:
        target.is_fixed, target.switch = False, before


def _now_and_then(target: AsideTarget, task: str) -> None:
    if target.chance.random() < 0.1:
        _replay_any(target, task)


def _hash_again(target: AsideTarget, task: str) -> None:
    """As the begin of a turn with new plans. The keys are those of the part that has kept the rows."""
    session = AsideSession(target)
    before = cast(AsideState, target.state).keys
    owner = Owner(task, 1, target.state.run)
    try:
        hash_again(cast(MySqlSession, session), owner, plans_of(target).inventory)
    except Retryable:
        return
    if not target.mixes_folds:
        assert cast(AsideState, target.state).keys == before, OTHER_KEYS


def aside_turn(target: ModelTarget, *, task: str, lane_count: int) -> Outcome:
    """A solo turn with new plans."""
    assert isinstance(target, AsideTarget)
    target.state.run += 1
    _hash_again(target, task)
    target.switch = partial(_now_and_then, target, task)
    try:
        return one_turn(target, task=task, lane_count=lane_count)
    finally:
        target.switch = list


def run_aside(
    seed: int,
    *,
    steps: int,
    about: str = "",
    flavour: Flavour = Flavour.MYSQL,
    guard: Callable[[pytest.MonkeyPatch], None] | None = None,
) -> None:
    """Apply a history of which some changes are refused; AssertionError if the rows are wrong."""
    history = make_history("bank", seed=seed, steps=steps, about=about, flavour=flavour)
    chance = random.Random(seed)
    rate = chance.choice([0.02, 0.1, 0.3])
    refused = frozenset(seq for seq in history.changes if chance.random() < rate)
    target = AsideTarget(
        history, chance, 0.1, aside=KEPT, session=cast(Any, AsideSession), refused=refused
    )
    target.state, target.mixes_folds = AsideState(), chance.random() < 0.5
    task = f"aside{next(_names)}"
    with pytest.MonkeyPatch.context() as patch:
        _patched(patch, target)
        if guard is not None:
            guard(patch)
        turns = [aside_turn, aside_turn, one_spread_turn] if target.mixes_folds else [aside_turn]
        run_randomly(target, task=task, turns=turns)
        state = target.state
        assert state.done == set(history.changes) - set(state.kept), NOT_EQUAL
        assert set(state.kept) == set(state.conflicts), NOT_EQUAL
        for _ in range(1000):
            if not target.state.kept:
                break
            _replay_any(target, task)
    state = target.state
    assert not state.kept, OTHER_END
    assert not state.keys, OTHER_END
    assert state.tables == history.tables, OTHER_END
