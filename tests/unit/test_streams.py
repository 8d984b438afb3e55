"""The gate between main's turns, and the next step of later loads."""

import threading

import pytest

from millrace.consumer.backfill.steps import Step, as_shown, next_step, text_of
from millrace.consumer.tables.filter import Route
from millrace.consumer.tables.related import related, with_related
from millrace.consumer.target.load_range import side_of
from millrace.consumer.target.loads import (
    COPIED,
    COPIES,
    FIRST,
    FOLLOWS,
    WAITS,
    LoadTable,
    Reach,
    task_of,
)
from millrace.consumer.turn.turn_gate import TurnGate
from millrace.drivers.mysql.catalog import ForeignKey
from millrace.schemas.documents import TableFilter
from millrace.schemas.stages import Loaded, LoadedTable
from millrace.schemas.view.view import view_of_filter
from tests.kit.waiting import PATIENCE_S


def _tables(*states: tuple[str, int]) -> list[LoadTable]:
    return [
        LoadTable(("shop", f"t{number}"), state, Reach(""), "", "", batch)
        for number, (state, batch) in enumerate(states)
    ]


@pytest.mark.parametrize(
    ("states", "step"),
    [
        ((), Step.NOTHING),
        (((FOLLOWS, FIRST),), Step.NOTHING),
        (((WAITS, FIRST),), Step.BEGIN),
        (((WAITS, 3), (FOLLOWS, FIRST)), Step.BEGIN),
        (((COPIES, 1), (WAITS, FIRST)), Step.COPY),
        (((COPIED, 1),), Step.COPY),
        (((FOLLOWS, 1), (WAITS, 1)), Step.CATCH_UP),
    ],
)
def test_one_load_is_finished_before_the_next_begins(
    states: tuple[tuple[str, int], ...], step: Step
) -> None:
    """Tables that wait meanwhile are in the next batch; those of the first load are main's."""
    assert next_step(_tables(*states)) is step


def test_status_names_few_tables_of_each_state() -> None:
    """Those that main applies are not named."""
    text = text_of(_tables((FOLLOWS, FIRST), (COPIES, 1), *[(WAITS, FIRST)] * 5))
    waiting = "waiting for a load, which begins automatically"
    assert text == f"shop.t2, shop.t3, shop.t4 and 2 more {waiting}; shop.t1 being copied"
    assert text_of(_tables((FOLLOWS, FIRST))) == ""


def test_status_names_a_change_that_a_load_has_noticed() -> None:
    """A table that was altered meanwhile waits, and its reason is named."""
    seen = LoadedTable(name="shop.t1", state=WAITS, waits="it was altered")
    found = as_shown(_tables((COPIES, 1), (COPIES, 1)), Loaded(tables=(seen,)))
    assert text_of(found) == (
        "shop.t1 waiting for a load, which begins automatically (it was altered);"
        " shop.t0 being copied"
    )
    assert as_shown(found, None) == found


def test_main_waits_only_between_its_turns() -> None:
    """The thread that asks gets the gate when the turn ends, and the next turn begins after its release."""
    gate, passed = TurnGate(), list[str]()
    in_turn, go = threading.Event(), threading.Event()

    def main() -> None:
        with gate.turn():
            in_turn.set()
            go.wait(PATIENCE_S)
            passed.append("first")
        with gate.turn():
            passed.append("second")

    thread = threading.Thread(target=main)
    thread.start()
    assert in_turn.wait(PATIENCE_S)
    assert not gate.is_held()
    gate.ask()
    assert not gate.is_held(0.01)
    go.set()
    assert gate.is_held(PATIENCE_S)
    assert passed == ["first"]
    gate.release()
    thread.join(PATIENCE_S)
    assert passed == ["first", "second"]


def test_closed_gate_keeps_no_thread_waiting() -> None:
    """A run that ends while its main waits."""
    gate = TurnGate()
    gate.ask()
    gate.close()
    with gate.turn():
        assert not gate.is_held()


def test_side_stream_is_named_after_its_task() -> None:
    """In the target's tables; no task has such a name."""
    assert side_of("shop") == "shop#load"
    assert task_of("shop#load") == task_of("shop") == "shop"


def test_tables_related_by_foreign_keys_are_found_together() -> None:
    """Directly or not, also through cycles; a table that the document leaves out ends the search."""

    def key(child: str, parent: str) -> ForeignKey:
        return ForeignKey(("s", child), ("n",), ("s", parent), ("id",))

    keys = [key("b", "a"), key("c", "b"), key("a", "c"), key("d", "left"), key("left", "a")]
    keys.append(key("e", "e"))
    route = Route(view_of_filter(TableFilter(exclude=("s.left",))))
    assert related([("s", "a")], keys, route) == {("s", "a"), ("s", "b"), ("s", "c")}
    assert related([("s", "e")], keys, route) == {("s", "e")}
    assert with_related({("s", "e"): "why"}, keys, route) == {("s", "e"): "why"}
