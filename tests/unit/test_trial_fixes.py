"""The fixes that ``millrace try`` prints: no task, set or relay log exists there."""

import pytest

from millrace.cli.trial.fixes import FIXES, NEEDS_A_TASK, continuation, fix_of
from millrace.codes import CATALOGUE
from millrace.errors import Fatal

# The families of codes that a look can end with: its server, the bytes, the conversion, and Kafka with --to-kafka.
FAMILIES = ("MR-10", "MR-2", "MR-30", "MR-60", "MR-65", "MR-70")
UUID = "3e11fa47-71ca-11e1-9e33-c80aa9429562"


@pytest.mark.parametrize("code", [code for code in CATALOGUE if code.startswith(FAMILIES)])
def test_fix_needs_nothing_but_the_server_and_this_command(code: str) -> None:
    """Neither that of the code nor one that an occurrence has for a task."""
    for fix in ("", "`millrace task resume TASK`."):
        printed = fix_of(Fatal(code, "x", fix=fix))
        assert printed
        assert not NEEDS_A_TASK.search(printed)


def test_every_listed_fix_replaces_one_for_tasks() -> None:
    """Others come from the catalogue."""
    unneeded = [code for code in FIXES if not NEEDS_A_TASK.search(CATALOGUE[code].fix)]
    assert unneeded == []


def test_fix_of_the_occurrence_comes_first() -> None:
    """Such as the GRANT that is missing."""
    grant = "GRANT REPLICATION SLAVE ON *.* TO 'me'@'%'"
    assert fix_of(Fatal("MR-1005", "x", fix=grant)) == grant


@pytest.mark.parametrize(
    ("position", "gtid", "after"),
    [
        (f"{UUID}:1-4", f"{UUID}:5", f"{UUID}:1-5"),
        ("", f"{UUID}:5", f"{UUID}:5"),
        ("0-1-4,2-1-9", "0-1-5", "0-1-5,2-1-9"),
    ],
)
def test_look_can_continue_after_what_it_cannot_show(position: str, gtid: str, after: str) -> None:
    """The command that is printed leaves out the source transaction of the error."""
    said = continuation(Fatal("MR-6504", "x", gtid=gtid), position)
    assert f"`--from '{after}'` leaves this source transaction out" in said


def test_look_can_continue_after_a_lost_connection() -> None:
    """At the end of what was shown; an unknown position is not printed."""
    lost = Fatal("MR-1006", "x")
    assert "`--from '0-1-4'` continues there" in continuation(lost, "0-1-4")
    assert continuation(lost, "") == ""
