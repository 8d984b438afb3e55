"""A fix names the task, the set and the rest in its commands, so that they can be pasted."""

import re

import pytest

from millrace.codes import CATALOGUE
from millrace.errors import Fatal, naming
from millrace.schemas.documents import RelayTask, names_of
from millrace.wording import PLACES, with_names
from tests.kit.control.control import a_capture, an_apply

# Places that the operator fills: a file, an address, another task, a subscriber.
LEFT = {"FILE", "CAPTURE", "NAME", "DIR", "HOST:PORT", "GTID-SET", "WORKER", "SUBDIR/FILE"}
LEFT |= {"STATEMENT"}
FIX = (
    "SET GLOBAL x = 1 (`millrace set show SET`), then `millrace unsafe skip-gtid TASK --gtid GTID`."
)


def test_only_words_of_commands_are_replaced() -> None:
    """SET is SQL, too. A name that is not known, or empty, leaves its place."""
    assert with_names(FIX, {"set": "shop", "task": "cap", "gtid": "0-1-7"}) == (
        "SET GLOBAL x = 1 (`millrace set show shop`), then `millrace unsafe skip-gtid cap --gtid 0-1-7`."
    )
    assert with_names(FIX, {"task": ""}) == FIX
    assert with_names("`millrace unsafe reset-position TASK --gtid GTID-SET`", {"gtid": "x"}) == (
        "`millrace unsafe reset-position TASK --gtid GTID-SET`"
    )


def test_context_of_an_error_fills_its_fix() -> None:
    """With the names that the block around it knows."""
    with pytest.raises(Fatal) as caught, naming(task="copy"):
        raise Fatal("MR-5042", "a gap", seq=4)
    assert "`millrace ddl skip copy 4`" in caught.value.fix
    assert "TASK" not in caught.value.fix
    with pytest.raises(Fatal) as caught, naming(task="copy"):
        raise Fatal("MR-5012", "no table", table="shop.odd name")
    assert "`millrace task load copy --tables 'shop.odd name'`" in caught.value.fix


def test_names_follow_from_a_task() -> None:
    """A relay is no task: its set is known."""
    capture, apply = a_capture(), an_apply()
    assert names_of(capture) == {
        "task": capture.name,
        "set": capture.set_name,
        "topic": capture.output.topic,
    }
    assert names_of(apply)["set"] == apply.target
    assert names_of(RelayTask("shop")) == {"set": "shop"}


@pytest.mark.parametrize("code", CATALOGUE)
def test_every_place_of_a_fix_can_be_filled(code: str) -> None:
    """A word in capitals in a command is a known place, or one for the operator."""
    commands = " ".join(re.findall(r"`millrace [^`]*`", CATALOGUE[code].fix))
    words = set(re.findall(r"(?<=[ =])[A-Z][A-Z:/-]*(?=[ `])", commands))
    assert words <= set(PLACES) | LEFT
