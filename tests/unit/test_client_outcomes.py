"""The judge of clients: every difference is reported, a lost row too, and a missing program never passes silently."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import pytest

from millrace.schemas.view.format_options import FormatName
from tests.kit.clients.client import ClientTopic
from tests.kit.clients.outcome import WITHOUT, Outcomes, differences
from tests.kit.clients.program import ProgramRun
from tests.kit.clients.scene import Rows

WANTED: Rows = {"1": {"id": "1", "note": None}, "2": {"id": "2", "note": ""}}
ROWS: list[dict[str, object]] = [{"id": 1, "note": None}, {"id": 2, "note": ""}]


@dataclass(frozen=True)
class NeedsCargo:
    """A client whose language this machine does not have."""

    name: str = "Rust: one"
    format: FormatName = FormatName.AVRO

    def missing(self) -> str:
        return "cargo"

    def prepare(self) -> None:
        raise AssertionError

    def versions(self) -> str:
        return "rdkafka 0.39.0"

    def rows(self, topic: ClientTopic) -> Iterable[Mapping[str, object]]:
        raise AssertionError(topic)


def test_equal_rows_have_no_differences() -> None:
    """Numbers and texts are equal by ``str``; NULL and the empty text differ."""
    assert differences(WANTED, ROWS) == []


@pytest.mark.parametrize(
    "rows",
    [
        ROWS[:1],
        [*ROWS, {"id": 3, "note": None}],
        [ROWS[0], {"id": 2, "note": None}],
        [ROWS[0], {"id": 2}],
        [{"id": 1, "note": "None"}, ROWS[1]],
    ],
)
def test_every_other_table_differs(rows: list[dict[str, object]]) -> None:
    """A row is missing or too many, a value is another one, a column is missing."""
    assert len(differences(WANTED, rows)) == 1


def test_failed_or_incomplete_program_has_no_rows() -> None:
    """Its exit code, its last line and its rows must agree."""
    good = ProgramRun(0, '{"id": 1, "price": 1.50}\n', "warning\n2 records, 1 rows\n")
    assert [{name: str(value) for name, value in row.items()} for row in good.rows()] == [
        {"id": "1", "price": "1.50"}
    ]
    for run in (
        ProgramRun(1, good.output, good.errors),
        ProgramRun(0, good.output, "warning\n"),
        ProgramRun(0, "", good.errors),
    ):
        with pytest.raises(AssertionError):
            run.rows()


def test_missing_program_fails_unless_the_operator_names_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The table then lists the client as not run."""
    outcomes = Outcomes()
    monkeypatch.setenv(WITHOUT, "go")
    with pytest.raises(AssertionError, match="no cargo"):
        outcomes.can_run(NeedsCargo())
    monkeypatch.setenv(WITHOUT, "go cargo")
    assert not outcomes.can_run(NeedsCargo())
    assert "not run: no cargo" in outcomes.table()


def test_table_lists_a_client_that_failed() -> None:
    """Else the table would show only the others."""
    outcomes = Outcomes()
    with pytest.raises(AssertionError), outcomes.recorded(NeedsCargo()):
        NeedsCargo().rows(ClientTopic("b:1", "", "t", 1))
    assert "Rust: one" in outcomes.table()
    assert "failed: AssertionError" in outcomes.table()
