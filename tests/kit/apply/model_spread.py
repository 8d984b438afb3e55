"""Spread turns on the model target: shares that run interleaved, die, run twice or plan differently.

The shares are threads of which one runs at a time; another continues after any target transaction. So every run of a
seed is the same.
"""

import random
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import pytest

from millrace.consumer.records.numbers import Seqs
from millrace.consumer.records.pieces import Size
from millrace.consumer.tables.table_plans import Catalogue, TablePlans
from millrace.consumer.target.bitmap import from_bitmaps
from millrace.consumer.target.progress import Mark, Owner
from millrace.consumer.turn import spread_applier, spread_turn, turn
from millrace.consumer.turn.context import Limits, Tools
from millrace.consumer.turn.order import Outcome, Share, ShareEnd, TurnOrder
from millrace.consumer.turn.resident import Resident
from millrace.consumer.write.lanes import Work
from millrace.schemas.gtid import Flavour
from millrace.schemas.view.view import TableRule, View
from tests.kit.apply.local import ALL
from tests.kit.apply.model import (
    DriverDiedError,
    ModelLanes,
    ModelSession,
    ModelTarget,
    no_schema,
    one_turn,
    order_for,
    plans_of,
    sessions_on,
    source_at_mark,
)
from tests.kit.apply.model_run import run_history

End = ShareEnd | BaseException


@dataclass
class Interleaved:
    """Threads of which one runs at a time."""

    chance: random.Random
    _free: threading.Condition = field(default_factory=threading.Condition)
    _running: int = -1
    _alive: list[int] = field(default_factory=list)
    _own: threading.local = field(default_factory=threading.local)

    def run(self, works: Sequence[Callable[[], ShareEnd]]) -> list[End]:
        """The result or error of each work."""
        ends: dict[int, End] = {}
        self._alive = list(range(len(works)))
        threads = [
            threading.Thread(target=self._work, args=(number, work, ends), daemon=True)
            for number, work in enumerate(works)
        ]
        self._running = self.chance.choice(self._alive)
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return [ends[number] for number in range(len(works))]

    def switch(self) -> None:
        """Let another thread, or this one, continue."""
        number = getattr(self._own, "number", None)
        if number is None:
            return  # outside a spread turn
        with self._free:
            self._running = self.chance.choice(self._alive)
            self._free.notify_all()
            self._free.wait_for(lambda: self._running == number)

    def _work(self, number: int, work: Callable[[], ShareEnd], ends: dict[int, End]) -> None:
        self._own.number = number
        with self._free:
            self._free.wait_for(lambda: self._running == number)
        try:
            ends[number] = work()
        except BaseException as exc:  # noqa: BLE001 - the test's thread decides
            ends[number] = exc
        with self._free:
            self._alive.remove(number)
            if self._alive:
                self._running = self.chance.choice(self._alive)
            self._free.notify_all()


@dataclass
class _ShareLanes(ModelLanes):
    """Parts of a share that has died are executed only after the turn."""

    left: list[Work] = field(default_factory=list)

    def _die(self, work: Work) -> None:
        self.left += [work, *(work for lane in self.waiting.values() for _, work in lane)]
        raise DriverDiedError


def first_error(ends: Sequence[End]) -> BaseException | None:
    """The error that ends the turn."""
    return next((end for end in ends if isinstance(end, BaseException)), None)


@dataclass
class ModelCluster:
    """Executors; ``is_doubled``: Spark may execute a share twice, at the same time."""

    target: ModelTarget
    limits: Limits
    left: list[Work] = field(default_factory=list)

    def executor_count(self) -> int:
        """See ``Cluster``."""
        raise AssertionError("the turn was chosen")

    def apply_shares(self, shares: Sequence[Share]) -> Sequence[ShareEnd]:
        """See ``Cluster``; shares may end in any way."""
        target, chance = self.target, self.target.chance
        again = [given for given in shares if target.happens()]
        threads = Interleaved(chance)
        target.switch = threads.switch
        given = [*shares, *again]
        ends = threads.run([self._work(share_) for share_ in given])
        target.calls += self.left
        answers: dict[int, End] = {}
        for share_, end in zip(given, ends, strict=True):
            if share_.place not in answers or chance.random() < 0.5:  # the first answer counts
                answers[share_.place] = end
        if (error := first_error(list(answers.values()))) is not None:
            raise error
        if target.happens():
            raise DriverDiedError
        return [end for _, end in sorted(answers.items()) if isinstance(end, ShareEnd)]

    def _work(self, given: Share) -> Callable[[], ShareEnd]:
        parts = self.target.chance.choice([1, 7, 1000])
        lanes = _ShareLanes(target=self.target, left=self.left)
        source = source_at_mark(self.target)
        tools = Tools(
            source,
            lanes,
            no_schema,
            replace(self.limits, part_rows=parts),
            is_over=lambda: self.target.chance.random() < 0.02,
            is_read=source.is_read,
        )
        resident = Resident(sessions_on(self.target, given.order.owner))
        return lambda: spread_applier.run_share(given, tools, resident)


def spread_patched(patch: pytest.MonkeyPatch, target: ModelTarget) -> None:
    """Connect spread turns to the model. Now and then a share knows no fold, so it has other lanes."""

    def read_position(_: object, __: str, *, before_run: int) -> tuple[Mark, Seqs]:
        applied = target.state.applied.items()
        return target.state.mark, from_bitmaps(
            bits for at, bits in applied if int(str(at[1])) < before_run
        )

    def take_turn(session: ModelSession, after: Owner) -> Owner:
        assert after.run == target.state.run
        target.state.run += 1
        return replace(after, run=target.state.run)

    def known_plans(*_: object, **__: object) -> TablePlans:
        plans = plans_of(target)
        if not target.happens():
            return plans
        inventory, route = plans.inventory, plans.route
        merges = any(rule.merge for rule in target.view.rules)  # needs folds of its constants
        if target.chance.random() < 0.5 and not merges:
            inventory = replace(inventory, folds={})
        else:
            # with the same rows: the first share that claims may write before the other one disagrees
            route = replace(route, view=View((TableRule("other.*"), *route.view.rules)))
        return TablePlans(Catalogue("", plans.schemas, inventory, route))

    patch.setattr(turn, "read_position", read_position)
    patch.setattr(spread_applier, "known_plans", known_plans)
    patch.setattr(spread_turn, "take_turn", take_turn)
    patch.setattr(spread_applier, "TURN_KEYS_MAX", 64)


def one_spread_turn(target: ModelTarget, *, task: str, lane_count: int) -> Outcome:
    """A new turn of several shares; it ends anywhere."""
    chance = target.chance
    order: TurnOrder = order_for(target, task=task, lane_count=lane_count)
    first = max(target.state.mark.next_offset, 0)
    end = order.offsets.end
    end = chance.choice([end, chance.randint(first, end)])
    order = replace(order, offsets=replace(order.offsets, end=end))
    limits = Limits(
        Size(chance.choice([1, 3, 20, 80]), 1 << chance.randint(8, 20)), turn_s=float(ALL)
    )
    cluster = ModelCluster(target, limits)
    try:
        return spread_turn.spread_turn(
            cluster,
            order,
            mark=target.state.mark,
            count=chance.randint(1, lane_count),
            sessions=sessions_on(target, order.owner),
            note=_ignore,
        )
    finally:
        target.switch = list


def _ignore(ends: Sequence[ShareEnd], steps: int) -> None:
    """Ignore what follows a turn."""


def run_spread_history(
    seed: int,
    *,
    steps: int,
    about: str = "",
    faults: float = 0.1,
    flavour: Flavour = Flavour.MYSQL,
    guard: Callable[[pytest.MonkeyPatch], None] | None = None,
) -> None:
    """``run_history`` with spread turns, and solo turns between them."""
    run_history(
        seed,
        steps=steps,
        about=about,
        faults=faults,
        flavour=flavour,
        turns=(one_turn, one_spread_turn, one_spread_turn),
        patched=spread_patched,
        guard=guard,
    )
