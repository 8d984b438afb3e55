"""The whole service runs in one process over models (``tests.simulation``), and its invariants hold in any order.

A failure prints its steps and a blob; ``@reproduce_failure`` with it runs them again. The long campaign prints seeds:
``MILLRACE_SEED=N pytest tests/property/test_simulation.py --chaos -k long_runs`` begins with seed N.
"""

import logging
import os
import random
import time
from collections.abc import Iterator
from contextlib import closing
from itertools import product
from pathlib import Path

import pytest
import structlog
from hypothesis import HealthCheck, seed, settings
from hypothesis.stateful import RuleBasedStateMachine, run_state_machine_as_test

from millrace.schemas.gtid import Flavour
from tests.kit.examples import examples
from tests.simulation.capture import Portion
from tests.simulation.gate import Fate, Plan
from tests.simulation.machine import (
    ApplyMachine,
    CaptureMachine,
    WholeMachine,
)
from tests.simulation.world import CAPTURE_WORKERS, Weather, World

Machine = type[RuleBasedStateMachine]

LONG_S = 300.0
LONG_STEPS = 60
FIRST_REQUESTS = 24  # of the first step of capture
MACHINES: dict[str, Machine] = {
    "capture": CaptureMachine,
    "apply": ApplyMachine,
    "whole": WholeMachine,
}
USUAL = examples(
    30,
    stateful_step_count=25,
    deadline=None,
    print_blob=True,
    suppress_health_check=list(HealthCheck),
)


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    """Drop the log lines of thousands of faults."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    yield
    structlog.reset_defaults()


@pytest.mark.parametrize("flavour", Flavour)
@pytest.mark.parametrize("where", MACHINES)
@pytest.mark.guarantee("complete")
def test_invariants_hold_under_any_interleaving(where: str, flavour: Flavour) -> None:
    """I1 to I10 of the threats hold under crashes, stale owners, late requests, torn files and lost answers."""
    run_state_machine_as_test(_of(MACHINES[where], flavour), settings=USUAL)


@pytest.mark.parametrize("flavour", Flavour)
def test_any_failed_request_keeps_schemas_before_rows(flavour: Flavour, tmp_path: Path) -> None:
    """Small batches make Kafka transactions of schema records alone; the failure of each request is tested once."""
    for at in range(1, FIRST_REQUESTS + 1):
        world = World(tmp_path / str(at), flavour)
        with closing(world), world.running():
            small, failure = Portion(1 << 20, 2000, 3), Weather(Plan(Fate.FAIL, at))
            world.step_capture(CAPTURE_WORKERS[0], small, failure)
            world.come_to_rest()


def _of(machine: Machine, flavour: Flavour) -> Machine:
    """Return a separate machine."""
    return type(machine.__name__, (machine,), {"flavour": flavour})


@pytest.mark.chaos
def test_invariants_hold_in_long_runs() -> None:
    """Many more examples of many more steps run, seed after seed."""
    number = int(os.environ.get("MILLRACE_SEED") or random.randrange(2**32))
    end_s = time.monotonic() + LONG_S
    longer = settings(USUAL, max_examples=60, stateful_step_count=LONG_STEPS, database=None)
    while time.monotonic() < end_s:
        for (where, machine), flavour in product(MACHINES.items(), Flavour):
            print(f"MILLRACE_SEED={number} ({where}, {flavour})", flush=True)
            made = seed(number)(_of(machine, flavour))
            run_state_machine_as_test(made, settings=longer)
        number += 1
