"""Runs a random history through apply on the model target, and compares the rows."""

import random
from collections.abc import Callable, Sequence
from itertools import count

import pytest

from schemas.gtid import Flavour
from tests.kit.apply.history import make_history
from tests.kit.apply.model import ModelTarget, Turn, model_patched, one_turn, run_randomly

OTHER_ROWS = "other rows"
REFUSED = r"MR-5010 .* is refused"

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
    """Apply a history with its faults; AssertionError if the rows are wrong. ``guard`` removes a guard first."""
    history = make_history("bank", seed=seed, steps=steps, about=about, flavour=flavour)
    target = ModelTarget(history, random.Random(seed), faults)
    with pytest.MonkeyPatch.context() as patch:
        model_patched(patch, target)
        patched(patch, target)
        if guard is not None:
            guard(patch)
        run_randomly(target, task=f"model{next(_names)}", turns=turns)
    assert target.state.tables == history.tables, OTHER_ROWS
    assert target.state.mark.seq == history.stream.seq
