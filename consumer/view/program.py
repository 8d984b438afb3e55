"""A view of one table as arrays for kernels, made once for each structure that it has. Apart: a turn makes it, too."""

from dataclasses import dataclass

from consumer.view.conditions import Program, make_program
from millrace.errors import Fatal
from schemas.record.row_layout import RowLayout
from schemas.view.condition import Condition, Op
from schemas.view.table_view import RuleProblem, TableView, apply_view
from schemas.view.view import View

_TEXT_OPS = frozenset((Op.COMPARE_TEXT, Op.CRC_CELL))
_ALL_ROWS = Condition("", (), 0)


@dataclass(frozen=True, slots=True)
class ViewProgram:
    """``condition`` without lines admits all rows."""

    view: TableView
    layout: RowLayout
    condition: Program

    @property
    def width(self) -> int:
        """The columns of the table, in each image of its records."""
        return len(self.layout.table.columns)

    @property
    def condition_texts(self) -> tuple[int, ...]:
        """The text columns whose values the condition reads."""
        steps = self.view.condition.steps if self.view.condition else ()
        columns = self.layout.table.columns
        reading = (step.column for step in steps if step.op in _TEXT_OPS)
        return tuple(sorted({at for at in reading if columns[at].type.is_text}))


def view_of(view: View, layout: RowLayout) -> TableView | None:
    """The view of the table with this structure; None if the table is not in the view. Fatal MR-5201."""
    try:
        return apply_view(view, layout.table)
    except RuleProblem as problem:
        table = layout.table
        omitted = f"; its rows omit {', '.join(table.omitted)}" if table.omitted else ""
        raise Fatal("MR-5201", f"{table.full_name}: {problem}{omitted}") from problem


def make_view_program(view: TableView, layout: RowLayout) -> ViewProgram:
    """The program of ``view_of`` the same layout."""
    assert not any(column.mask for column in view.columns), "masks are not computed yet"
    return ViewProgram(view, layout, make_program(view.condition or _ALL_ROWS))
