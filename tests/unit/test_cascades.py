"""Which cascades safe mode repeats, by the foreign keys of the target."""

import pytest

from millrace.consumer.tables.cascades import inexact, why_deletion_is_inexact
from millrace.drivers.mysql.actions import NO_ACTIONS, Action, Actions
from millrace.drivers.mysql.catalog import ForeignKey

DELETES, NULLS = Actions(on_delete=Action.CASCADE), Actions(on_delete=Action.SET_NULL)
MOVES = Actions(on_update=Action.CASCADE)


def _key(child: str, parent: str, actions: Actions, *, to: str = "id") -> ForeignKey:
    return ForeignKey(("s", child), ("up",), ("s", parent), (to,), actions, f"{child}_{parent}")


@pytest.mark.parametrize(
    ("keys", "why"),
    [
        ([_key("c", "p", DELETES)], ""),
        ([_key("c", "p", DELETES), _key("g", "c", NO_ACTIONS)], ""),
        ([_key("c", "p", DELETES), _key("g", "c", MOVES)], ""),
        ([_key("c", "p", NO_ACTIONS), _key("g", "c", DELETES)], ""),
        ([_key("c", "p", DELETES), _key("g", "c", DELETES)], "c_p of s.c, and on by constraint g_c"),
        ([_key("c", "p", DELETES), _key("g", "c", NULLS)], "c_p of s.c, and on by constraint g_c"),
        ([_key("p", "p", DELETES)], "p_p of s.p, and on by constraint p_p"),
        ([_key("p", "p", NULLS)], ""),
        ([_key("c", "p", NULLS), _key("g", "c", DELETES)], ""),
        ([_key("c", "p", NULLS), _key("g", "c", MOVES)], ""),
        ([_key("c", "p", NULLS), _key("g", "c", MOVES, to="UP")], "and on by constraint g_c of s.g"),
        ([_key("c", "p", Actions(Action.UNKNOWN))], "c_p of s.c has an unknown action"),
    ],
)  # fmt: skip
def test_deletion_is_exact_if_its_cascade_ends_at_child_rows(
    keys: list[ForeignKey], why: str
) -> None:
    """A cascade of child rows that are deleted, or of the columns that become NULL, is refused with both names."""
    found = why_deletion_is_inexact(keys, ("s", "p"))
    assert (why in found) if why else not found


def test_all_refusals_of_a_task_are_listed() -> None:
    """Each table that it admits has those of deletions and of changed keys."""
    keys = [_key("c", "p", MOVES), _key("g", "c", DELETES), _key("g", "g", DELETES)]
    found = inexact(keys, [("s", "c"), ("s", "p")])
    assert found == [
        "s.c: a deletion cascades by constraint g_c of s.g, and on by constraint g_g of s.g",
        "s.p: an UPDATE changes the key of constraint c_p of s.c, ON UPDATE CASCADE",
    ]
