"""The whole service in one process over models (``tests.simulation``): what must hold, whatever is interleaved.

A failure prints its steps and a blob; ``@reproduce_failure`` with it runs them again. The long campaign prints seeds:
``MILLRACE_SEED=N pytest tests/property/test_simulation.py --chaos -k for_long`` begins with that one.
"""

import logging
import os
import random
import time
from collections.abc import Iterator

import pytest
import structlog
from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis.stateful import RuleBasedStateMachine, run_state_machine_as_test

from tests.simulation.guards import GUARDS, Guard
from tests.simulation.judges import ViolationError
from tests.simulation.machine import (
    AnswersMachine,
    ApplyMachine,
    CaptureMachine,
    DriversMachine,
    LanesMachine,
    OwnersMachine,
    PartsMachine,
    RelayMachine,
    StatementsMachine,
    WholeMachine,
)

Machine = type[RuleBasedStateMachine]

GUARD_SEEDS = 9
LONG_S = 300.0
LONG_STEPS = 60
MACHINES: dict[str, Machine] = {
    "capture": CaptureMachine,
    "apply": ApplyMachine,
    "whole": WholeMachine,
}
FEW_RULES: dict[str, Machine] = {
    "answers": AnswersMachine,
    "owners": OwnersMachine,
    "relay": RelayMachine,
    "parts": PartsMachine,
    "lanes": LanesMachine,
    "drivers": DriversMachine,
    "statements": StatementsMachine,
}
USUAL = settings(
    max_examples=30,
    stateful_step_count=25,
    deadline=None,
    print_blob=True,
    suppress_health_check=list(HealthCheck),
)
FEW = settings(USUAL, max_examples=40, stateful_step_count=10, database=None)


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    """Every fault is logged; there are thousands."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    yield
    structlog.reset_defaults()


@pytest.mark.parametrize("where", MACHINES)
def test_whatever_is_interleaved_the_invariants_hold(where: str) -> None:
    """I1 to I10 of the threats: crashes, stale owners, late requests, torn files, lost answers, in any order."""
    run_state_machine_as_test(MACHINES[where], settings=USUAL)


@pytest.mark.parametrize("guard", GUARDS, ids=lambda guard: guard.name)
def test_without_a_guard_something_is_violated(guard: Guard) -> None:
    """The simulation can fail: each guard taken away shows within a bounded number of examples, always the same."""
    with guard.taken_away(), pytest.raises(ViolationError):
        _try_seeds(guard)


def _try_seeds(guard: Guard) -> None:
    tried = settings(FEW, phases=[Phase.generate], print_blob=False)
    for number in (guard.seed, *range(1, GUARD_SEEDS)):
        run_state_machine_as_test(_seeded(FEW_RULES[guard.where], number), settings=tried)


@pytest.mark.parametrize("where", FEW_RULES)
def test_with_all_guards_nothing_is_violated(where: str) -> None:
    """The same examples: it was the guard."""
    tried = settings(FEW, max_examples=16 if where == "parts" else 8)
    run_state_machine_as_test(_seeded(FEW_RULES[where], 2), settings=tried)


def _seeded(machine: Machine, number: int) -> Machine:
    """A machine of its own: the seed is kept in the class."""
    made: Machine = seed(number)(type(machine.__name__, (machine,), {}))
    return made


@pytest.mark.chaos
def test_the_invariants_hold_for_long() -> None:
    """Many more examples of many more steps, seed after seed."""
    number = int(os.environ.get("MILLRACE_SEED") or random.randrange(2**32))
    end_s = time.monotonic() + LONG_S
    longer = settings(USUAL, max_examples=60, stateful_step_count=LONG_STEPS, database=None)
    while time.monotonic() < end_s:
        for where, machine in MACHINES.items():
            print(f"MILLRACE_SEED={number} ({where})", flush=True)
            run_state_machine_as_test(_seeded(machine, number), settings=longer)
        number += 1
