"""Guards of the product removed in the simulation: a judge reports the violation; with the guard there is none."""

import logging
from typing import ClassVar

import pytest
import structlog
from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis.stateful import RuleBasedStateMachine, run_state_machine_as_test

from millrace.schemas.gtid import Flavour
from tests.mutants.simulation_guards import GUARDS, Guard
from tests.simulation.judges import ViolationError
from tests.simulation.machine import (
    AnswersMachine,
    DriversMachine,
    FilesMachine,
    LanesMachine,
    OwnersMachine,
    PartsMachine,
    RelayMachine,
    StatementsMachine,
)

Machine = type[RuleBasedStateMachine]

FEW_RULES: dict[str, Machine] = {
    "answers": AnswersMachine,
    "owners": OwnersMachine,
    "relay": RelayMachine,
    "files": FilesMachine,
    "parts": PartsMachine,
    "lanes": LanesMachine,
    "drivers": DriversMachine,
    "statements": StatementsMachine,
}
WITHOUT_A_GUARD = {"I2", "I7", "I9"}  # the row (I1) or the commit (I8) is wrong before these
FEW = settings(
    max_examples=40,
    stateful_step_count=10,
    deadline=None,
    database=None,
    phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
)


@pytest.fixture(autouse=True)
def _quiet() -> None:
    """Drop the logs of thousands of faults."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))


@pytest.mark.parametrize(
    ("guard", "flavour"),
    [(guard, flavour) for guard in GUARDS for flavour in guard.flavours],
    ids=lambda part: part.name.lower(),
)
def test_taking_a_guard_away_violates_an_invariant(guard: Guard, flavour: Flavour) -> None:
    """Without the guard its violation is found; with the guard the same examples have none."""
    with guard.taken_away(), pytest.raises(ViolationError, match=rf"^{guard.harm}\b"):
        _try(machine := _few_rules(guard, flavour))
    with pytest.raises(EnoughError):
        _try(_few_rules(guard, flavour, examples_max=machine.begun))


def test_every_invariant_has_a_guard() -> None:
    """``test_broken_history_is_reported_by_its_invariant`` covers the invariants that no removed guard breaks first."""
    harms = {guard.harm.partition(":")[0] for guard in GUARDS}
    assert harms | WITHOUT_A_GUARD == {f"I{number}" for number in range(1, 11)}
    assert not harms & WITHOUT_A_GUARD


class EnoughError(Exception):
    """The wanted number of examples is done."""


class _FewRules(RuleBasedStateMachine):
    """Counts its examples and ends after the last wanted one."""

    begun: ClassVar[int] = 0
    examples_max: ClassVar[int] = FEW.max_examples

    def __init__(self) -> None:
        super().__init__()
        type(self).begun += 1

    def teardown(self) -> None:
        super().teardown()
        if self.begun >= self.examples_max:
            raise EnoughError


def _few_rules(
    guard: Guard, flavour: Flavour, *, examples_max: int = FEW.max_examples
) -> type[_FewRules]:
    """The machine for the guard's part of the world, with the guard's seed."""
    bases = (_FewRules, FEW_RULES[guard.where])
    attributes = {"flavour": flavour, "examples_max": examples_max}
    made: type[_FewRules] = type(guard.where, bases, attributes)
    seed(guard.seed)(made)
    return made


def _try(machine: Machine) -> None:
    run_state_machine_as_test(machine, settings=FEW)
