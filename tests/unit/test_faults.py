"""Fault points are armed by name, act once, and cost nothing otherwise."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

from millrace import faults
from millrace.errors import Retryable
from millrace.faults import Action, ArmedFault, fault_point, parse_faults, register

POINT = register("test.point")


@pytest.fixture(autouse=True)
def _disarmed() -> Iterator[None]:
    yield
    faults.arm("")


def test_unarmed_fault_point_does_nothing() -> None:
    """Production code passes points without effect."""
    fault_point(POINT)
    assert POINT in faults.registered()


def test_fault_point_raises_only_at_the_named_passage() -> None:
    """`@2` lets the first passage through, stops the second, and lets the third through."""
    faults.arm("test.point:raise@2")
    fault_point(POINT)
    with pytest.raises(Retryable) as caught:
        fault_point(POINT)
    assert caught.value.code == "MR-9002"
    fault_point(POINT)


def test_watcher_sees_each_passage_in_its_block() -> None:
    """A watcher is called with the name; after the block no passage is reported."""
    seen: list[str] = []
    with faults.watched(seen.append):
        fault_point(POINT)
        fault_point(POINT)
    fault_point(POINT)
    assert seen == [POINT, POINT]


def test_arming_one_fault_point_leaves_others_alone() -> None:
    """Arming one name does not affect the others."""
    faults.arm("test.other:raise")
    fault_point(POINT)
    assert faults.parse_faults("test.other:raise")[0].name == "test.other"


def test_fault_point_name_cannot_be_registered_twice() -> None:
    """A name identifies one place in the code."""
    with pytest.raises(ValueError, match=r"test\.point"):
        register("test.point")


@pytest.mark.parametrize(
    "text", ["x", "x:", ":kill", "x:explode", "x:kill@", "x:kill@0", "x:kill@a"]
)
def test_invalid_fault_instruction_is_refused(text: str) -> None:
    """A typo in a fault campaign must not pass as a run without faults."""
    with pytest.raises(ValueError, match="MILLRACE_FAULT"):
        parse_faults(text)


def test_fault_instructions_are_parsed() -> None:
    """Several points are given, each with its action and passage."""
    found = parse_faults("a.b:kill, c:stop@3")
    assert found == (ArmedFault("a.b", Action.KILL, 1), ArmedFault("c", Action.STOP, 3))


def test_kill_ends_the_process_at_once() -> None:
    """The environment alone triggers SIGKILL before any code after the point runs."""
    program = "from millrace.faults import *; fault_point(register('p')); print('passed')"
    environment = {**os.environ, "MILLRACE_FAULT": "p:kill"}
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, check=False
    )
    assert done.returncode == -signal.SIGKILL
    assert done.stdout == b""
