"""The result of a comparison as text: what is listed, what is only counted, what a repair has left."""

from collections.abc import Generator, Iterator
from dataclasses import replace
from typing import cast

import pytest

from millrace.cli.compare.text import print_text
from millrace.consumer.compare import compare as run
from millrace.consumer.compare import pool
from millrace.consumer.compare.chunk import ChunkResult, Job
from millrace.consumer.compare.gaps import Gap
from millrace.consumer.compare.members import ReadMember
from millrace.consumer.compare.result import SHOWN_MAX, Comparison, Difference, Part, RowTexts, What
from millrace.consumer.compare.settle import Suspect
from millrace.consumer.compare.show import note_of, with_left
from millrace.consumer.compare.sides import Ends
from millrace.consumer.compare.structure import Change
from millrace.consumer.compare.table import pair_of
from millrace.consumer.compare.tables import WHOLE_TABLE
from millrace.drivers.mysql.catalog import CatalogColumn, CatalogTable, UniqueKey
from millrace.drivers.mysql.connection import Endpoint
from millrace.errors import Fatal

ORIGIN = ReadMember(cast(Endpoint, None))
COLUMN = Change("shop.t", "column note", "", "int NULL DEFAULT NULL")
VIEW = Change("shop", "view v", "exists", "")


def _rows(table: str, count: int) -> tuple[Difference, ...]:
    return tuple(
        Difference(table, What.EXTRA, str(key), RowTexts(target="`id`=1")) for key in range(count)
    )


def test_text_says_how_many_differences_are_not_listed(capsys: pytest.CaptureFixture[str]) -> None:
    """After each table of which some are only counted."""
    found = Comparison(tables=2)
    found.add("shop.a", Part(rows=30, differing=27, shown=_rows("shop.a", 27)))
    found.add("shop.b", Part(rows=2, differing=2, shown=_rows("shop.b", 2)))
    print_text(ORIGIN, found)
    lines = capsys.readouterr().out.splitlines()
    assert sum(line.startswith("shop.a: extra: ") for line in lines) == SHOWN_MAX
    assert [line for line in lines if "more" in line] == ["shop.a: and 7 more"]
    assert lines.index("shop.a: and 7 more") == lines.index("shop.b: extra: 0") - 1
    assert lines[-1] == "2 tables, 32 rows: 29 differences"


@pytest.mark.parametrize(
    ("found", "verdict"),
    [
        (Comparison(), "equal"),
        (Comparison(unsettled=2), "no difference found, 2 rows unsettled"),
        (Comparison(structure=[COLUMN]), "rows equal, 1 difference of structure"),
        (Comparison(structure=[VIEW]), "equal"),
        (
            Comparison(unread={"a": ("b (masked)", "c (masked)")}),
            "rows equal, 2 columns not compared",
        ),
        (Comparison(kept={"shop.t": 3}), "rows equal, 3 rows kept aside"),
    ],
)
def test_verdict_is_equal_only_if_nothing_was_left_out(
    found: Comparison, verdict: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Rows that changed at each look, and columns that one side has, are no part of the answer."""
    print_text(ORIGIN, found)
    assert capsys.readouterr().out.splitlines()[-1] == f"0 tables, 0 rows: {verdict}"
    assert found.is_equal == (verdict == "equal")


def test_table_that_was_not_compared_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing is known about it, so it is not equal."""
    found = Comparison(tables=1)
    found.leave_out("shop.t", "a load copies it now")
    found.leave_out("shop.t", "it was altered meanwhile")
    print_text(ORIGIN, found)
    assert capsys.readouterr().out.splitlines() == [
        "shop.t: not compared: a load copies it now",
        "1 table, 0 rows: no difference found, 2 rows unsettled",
    ]
    assert not found.is_equal
    assert not found.is_done  # the exit code of `millrace compare`


def test_comparison_is_done_when_its_differences_are_repaired() -> None:
    """Rows that change at each look leave the exit code as it is: the next comparison reads them again."""
    found = Comparison()
    found.add("shop.t", Part(10, differing=2, unsettled=1, repaired=1))
    assert not found.is_done
    found.add("shop.t", Part(10, repaired=1))
    assert found.is_done


@pytest.mark.parametrize("code", ["MR-5012", "MR-5013"])
def test_rest_of_a_table_that_was_altered_is_not_equal(
    code: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was dropped or altered when the border of its next chunk was looked for."""
    table = CatalogTable(
        "shop",
        "t",
        {"id": CatalogColumn("id", "int", "int", "", "", False, False)},
        (UniqueKey("PRIMARY", ("id",), True),),
    )

    class Altered:
        """Sides whose source was altered."""

        def __init__(self, _: Ends) -> None:
            self.source = self

        def query(self, sql: str) -> None:
            raise Fatal(code, sql)

        def rollback(self) -> None:
            """Nothing to end."""

        close = rollback

    class Pool:
        """Compares nothing."""

        def run(self, _: object, jobs: Iterator[Job]) -> Generator[ChunkResult, None, None]:
            assert list(jobs) == []
            yield from ()

    monkeypatch.setattr(run, "Sides", Altered)
    monkeypatch.setattr(run, "pairs", lambda *_, **__: [pair_of(table, table)])
    found = run.compare_sets(
        Ends(cast(Endpoint, None), cast(Endpoint, None)),
        lambda *_: True,
        rules=run.Rules(pool=cast(pool.Pool, Pool())),
    )
    assert found.left_out == {"shop.t": "it was altered meanwhile"}
    assert not found.is_equal


def test_structure_is_shown_with_both_sides(capsys: pytest.CaptureFixture[str]) -> None:
    """The first places of each table; a line counts the others."""
    more = [replace(COLUMN, place=f"column c{number}") for number in range(21)]
    print_text(ORIGIN, Comparison(structure=[VIEW, *more]))
    lines = capsys.readouterr().out.splitlines()
    assert lines[:6] == [
        "shop: structure: view v",
        "  source  exists",
        "  target  -",
        "shop.t: structure: column c0",
        "  source  -",
        "  target  int NULL DEFAULT NULL",
    ]
    assert lines[-2:] == [
        "shop.t: and 1 more of structure",
        "0 tables, 0 rows: rows equal, 21 differences of structure",
    ]


@pytest.mark.parametrize(("what", "verb"), [("extra", "drops"), ("missing", "creates")])
def test_no_drop_is_advised_without_waiting_for_the_task(
    what: str, verb: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The source may have dropped the table, or created it, and the task has not got there."""
    one = Difference("shop.t", what, WHOLE_TABLE)
    assert "`millrace task load" in note_of(one) or "DROP TABLE" in note_of(one)
    found = Comparison()
    found.note("shop.t", what, [WHOLE_TABLE])
    print_text(ORIGIN, found, has_waited=False)
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("Compared without waiting")
    assert f"executed yet the statement that {verb}" in lines[2]
    assert "without --now" in lines[2]
    assert not any("DROP TABLE" in line or "task load" in line for line in lines)


def test_rows_that_a_repair_has_left_get_a_note() -> None:
    """A gap of several rows counts as each of them; rows that are repaired have no note."""
    suspect = Suspect(("1",))
    gaps = [Gap(What.EXTRA, None, suspect, count) for count in (2, 1, 30)]
    listed = with_left(_rows("shop.a", SHOWN_MAX), gaps, [True, False, True])
    assert [one.is_left for one in listed] == [place == 2 for place in range(SHOWN_MAX)]
    assert "not repaired" in note_of(listed[2])
    assert note_of(listed[0]) == ""
