"""Fault points: armed by name, acting once, costing nothing otherwise."""

import ast
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from millrace import faults
from millrace.errors import Retryable
from millrace.faults import Action, ArmedFault, fault_point, parse_faults, register
from tests.campaign import POINTS

ROOT = Path(__file__).parents[2]
PRODUCT = ("millrace", "schemas", "zk", "producer", "consumer", "deploy")
POINT = register("test.point")


@pytest.fixture(autouse=True)
def _disarmed() -> Iterator[None]:
    yield
    faults.arm("")


def test_an_unarmed_point_does_nothing() -> None:
    """Production code passes points freely."""
    fault_point(POINT)
    assert POINT in faults.registered()


def test_a_point_raises_at_the_named_passage_and_only_there() -> None:
    """`@2` lets the first passage through, stops the second, lets the third through."""
    faults.arm("test.point:raise@2")
    fault_point(POINT)
    with pytest.raises(Retryable) as caught:
        fault_point(POINT)
    assert caught.value.code == "MR-9002"
    fault_point(POINT)


def test_another_point_is_not_touched() -> None:
    """Arming one name leaves the others alone."""
    faults.arm("test.other:raise")
    fault_point(POINT)
    assert faults.parse_faults("test.other:raise")[0].name == "test.other"


def test_a_name_can_not_be_registered_twice() -> None:
    """A test that kills at a name kills at one place."""
    with pytest.raises(ValueError, match=r"test\.point"):
        register("test.point")


@pytest.mark.parametrize(
    "text", ["x", "x:", ":kill", "x:explode", "x:kill@", "x:kill@0", "x:kill@a"]
)
def test_a_wrong_instruction_is_refused(text: str) -> None:
    """A typo in a fault campaign must not pass as a run without faults."""
    with pytest.raises(ValueError, match="MILLRACE_FAULT"):
        parse_faults(text)


def test_instructions_are_read_as_written() -> None:
    """Several points, each with its action and passage."""
    found = parse_faults("a.b:kill, c:stop@3")
    assert found == (ArmedFault("a.b", Action.KILL, 1), ArmedFault("c", Action.STOP, 3))


def test_kill_ends_the_process_at_once() -> None:
    """SIGKILL by the environment alone, before anything after the point runs."""
    program = "from millrace.faults import *; fault_point(register('p')); print('passed')"
    environment = {**os.environ, "MILLRACE_FAULT": "p:kill"}
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, check=False
    )
    assert done.returncode == -signal.SIGKILL
    assert done.stdout == b""


# ---- the campaign knows them all ---------------------------------------------------------------------


def registrations(tree: ast.Module) -> list[str]:
    """The names that a module registers, or ``?`` and the line where the name does not stand in the call itself."""
    own = {called for node in ast.walk(tree) for called in _imported(node)}
    return [
        node.args[0].value
        if len(node.args) == 1
        and isinstance(node.args[0], ast.Constant)
        and isinstance(node.args[0].value, str)
        else f"? line {node.lineno}"
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and ast.unparse(node.func) in own
    ]


def _imported(node: ast.AST) -> Iterator[str]:
    """By what name a module that holds this import calls ``register`` of ``millrace.faults``."""
    if isinstance(node, ast.ImportFrom) and not node.level:
        for alias in node.names:
            if (node.module, alias.name) == ("millrace.faults", "register"):
                yield alias.asname or alias.name
            elif (node.module, alias.name) == ("millrace", "faults"):
                yield f"{alias.asname or alias.name}.register"
    elif isinstance(node, ast.Import):
        for alias in node.names:
            if alias.name == "millrace.faults":
                yield f"{alias.asname or alias.name}.register"


def test_every_fault_point_of_the_product_is_a_point_of_the_campaign() -> None:
    """Wherever it is registered: one in a part that the campaign does not import would silently never be killed."""
    found = {
        name: str(path.relative_to(ROOT))
        for part in PRODUCT
        for path in (ROOT / part).rglob("*.py")
        for name in registrations(ast.parse(path.read_text()))
    }
    assert len(found) >= 30
    assert {name: path for name, path in found.items() if name not in POINTS} == {}


@pytest.mark.parametrize(
    "text",
    [
        "from millrace.faults import register\nA = register('a.b')",
        "from millrace.faults import fault_point, register as named\nA = named('a.b')",
        "from millrace import faults\nA = faults.register('a.b')",
        "import millrace.faults\nA = millrace.faults.register('a.b')",
    ],
)
def test_a_registration_is_seen_in_any_form(text: str) -> None:
    """And what is called alike elsewhere is none."""
    assert registrations(ast.parse(text)) == ["a.b"]
    assert registrations(ast.parse("def f(book):\n    book.register('a.b')")) == []
    computed = "from millrace.faults import register\nA = register(f'{1}')"
    assert registrations(ast.parse(computed)) == ["? line 2"]
