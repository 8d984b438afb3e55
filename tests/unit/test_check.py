"""`millrace check`: every area is attempted, and the result has an exit code, a table and a stable JSON form."""

import threading
from collections.abc import Iterator

import pytest

from millrace.checks.areas import Check, run_checks
from millrace.checks.requirement import (
    Area,
    Requirement,
    Subject,
    by_area,
    exit_code,
    without_ignored,
)
from millrace.checks.text import WIDTH, as_lines, as_plain
from millrace.errors import Fatal

SOURCE, KAFKA = Subject(Area.SOURCE, "db1:3306"), Subject(Area.KAFKA, "topic shop")
GOOD = SOURCE.ok("binlog_format", "ROW")
WARNING = SOURCE.warn("MR-4162", "binlogs are kept", found="1.0 h", wanted="72 h")
FAILURE = KAFKA.fail("MR-3009", "topic", found="it has 3 partitions and must have 1 " * 5)


def good() -> Iterator[Requirement]:
    """One requirement."""
    yield GOOD


def broken() -> Iterator[Requirement]:
    """One requirement, then an error."""
    yield WARNING
    raise Fatal("MR-3005", "refused: sasl://me:secret@broker")


def test_failing_area_hides_no_other() -> None:
    """An error is a failure with its code and fix; what was found before is kept."""
    found = run_checks([Check(KAFKA, broken, "topic"), Check(SOURCE, good)])
    assert [one.code for one in found] == ["MR-4162", "MR-3005", ""]
    assert found[1].fix
    assert "secret" not in found[1].found
    assert [one.subject.area for one in by_area(found)] == [Area.SOURCE, Area.SOURCE, Area.KAFKA]


def test_hanging_area_ends_at_its_limit() -> None:
    """The command does not wait for a server that never answers, and shows what it had found."""
    is_over = threading.Event()

    def hanging() -> Iterator[Requirement]:
        yield GOOD
        is_over.wait()

    try:
        found = run_checks([Check(SOURCE, hanging), Check(KAFKA, good)], limit_s=0.2)
    finally:
        is_over.set()
    assert [one.code for one in found] == ["", "MR-4178", ""]


def test_unexpected_error_of_a_check_is_raised() -> None:
    """A bug must not look like a requirement that holds."""

    def wrong() -> Iterator[Requirement]:
        yield GOOD
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        run_checks([Check(SOURCE, wrong)])


@pytest.mark.parametrize(
    ("found", "expected"), [([], 0), ([GOOD], 0), ([GOOD, WARNING], 1), ([WARNING, FAILURE], 2)]
)
def test_exit_code_is_that_of_the_worst_requirement(
    found: list[Requirement], expected: int
) -> None:
    """0 all hold, 1 warnings only, 2 a failure."""
    assert exit_code(found) == expected


def test_ignored_code_no_longer_counts() -> None:
    """Only findings with this code are left out."""
    kept = without_ignored([GOOD, WARNING, FAILURE], ["MR-3009"])
    assert (kept, exit_code(kept)) == ([GOOD, WARNING], 1)


def test_table_fits_80_columns_and_cuts_no_statement() -> None:
    """A long word, such as a name in a statement, may be longer."""
    statement = f"SET GLOBAL {'x' * 90} = 1;"
    long = SOURCE.warn("MR-4161", "privileges", found="a, " * 60, wanted="b", fix=statement)
    lines = list(as_lines([GOOD, WARNING, long, FAILURE], ignored_count=2))
    assert lines[0] == "source db1:3306"
    assert lines[1].split() == ["ok", "binlog_format", "ROW"]
    assert lines[2].split() == ["warn", "MR-4162", "binlogs", "are", "kept", "1.0", "h"]
    assert "kafka topic shop" in lines
    assert lines[-1] == "1 ok, 2 warn, 1 fail, 2 ignored"
    assert [line for line in lines if len(line) > WIDTH] == [f"{'':25}{'x' * 90}"]


def test_json_has_documented_keys() -> None:
    """docs/check.md lists them; scripts read them."""
    plain = as_plain([GOOD, WARNING], ignored_count=1)
    requirements = plain.pop("requirements")
    assert plain == {"format": 1, "exit_code": 1, "ok": 1, "warn": 1, "fail": 0, "ignored": 1}
    assert requirements == [
        {
            "level": "ok",
            "code": "",
            "area": "source",
            "subject": "db1:3306",
            "what": "binlog_format",
            "found": "ROW",
            "wanted": "",
            "fix": "",
        },
        {
            "level": "warn",
            "code": "MR-4162",
            "area": "source",
            "subject": "db1:3306",
            "what": "binlogs are kept",
            "found": "1.0 h",
            "wanted": "72 h",
            "fix": WARNING.fix,
        },
    ]


def test_fix_names_the_set_and_the_task_of_its_area() -> None:
    """Also the fix of an error. A place without a known name stays."""

    def late() -> Iterator[Requirement]:
        yield SOURCE.warn("MR-4161", "superfluous privileges", found="FILE on *.*")
        raise Fatal("MR-1002", "refused")

    names = {"set": "shop", "task": ""}
    warned, failed = run_checks([Check(SOURCE, late, names=names)])
    assert "`millrace grants print shop`" in warned.fix
    assert "`millrace task resume TASK`" in failed.fix
