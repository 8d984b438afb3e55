"""Runs a random history through apply on the model target, and compares the rows."""

import random
from collections.abc import Callable, Sequence
from functools import partial
from itertools import count, pairwise

import pytest

from millrace.schemas.gtid import Flavour
from tests.kit.apply.history import History, make_history
from tests.kit.apply.model import (
    ModelTarget,
    State,
    Turn,
    model_patched,
    one_turn,
    run_randomly,
    whole_turn,
)

OTHER_ROWS = "other rows"
REFUSED = r"MR-5010 .* is refused"
TORN = "a part of a source transaction is visible"

_names = count(1)


def run_history(
    seed: int,
    *,
    steps: int,
    about: str = "",
    faults: float = 0.1,
    flavour: Flavour = Flavour.MYSQL,
    turns: Sequence[Turn] = (one_turn,),
    patched: Callable[[pytest.MonkeyPatch, ModelTarget], object] = lambda *_: None,
    guard: Callable[[pytest.MonkeyPatch], None] | None = None,
) -> None:
    """Apply a history with its faults; AssertionError if the rows are wrong. ``guard`` removes a guard first.

    If all turns are transactional, an observer reads the target after each commit.
    """
    history = make_history("bank", seed=seed, steps=steps, about=about, flavour=flavour)
    target = ModelTarget(history, random.Random(seed), faults)
    with pytest.MonkeyPatch.context() as patch:
        model_patched(patch, target)
        patched(patch, target)
        if guard is not None:
            guard(patch)
        if set(turns) == {whole_turn}:
            target.observe = partial(check_whole, history)
        run_randomly(target, task=f"model{next(_names)}", turns=turns)
    assert target.state.tables == history.tables, OTHER_ROWS
    assert target.state.mark.seq == history.stream.seq


def check_whole(history: History, state: State) -> None:
    """Each source transaction is on the target with all of its rows or none."""
    for begin, end in pairwise([0, *history.stream.ends]):
        done = sum(seq in state.done for seq in range(begin + 1, end + 1))
        assert done in (0, end - begin), TORN
