"""A view of one table as arrays for kernels, made once for each structure that it has. Apart: a turn makes it once."""

from dataclasses import dataclass

from millrace.consumer.view.conditions import Program, make_program
from millrace.consumer.view.mask_keys import MaskKeys
from millrace.consumer.view.masks import Masks, make_masks
from millrace.errors import Fatal
from millrace.schemas.record.row_layout import RowLayout
from millrace.schemas.view.condition import Condition, Op
from millrace.schemas.view.table_view import RuleProblem, TableView, apply_view
from millrace.schemas.view.view import View

_TEXT_OPS = frozenset((Op.COMPARE_TEXT, Op.COMPARE_WEIGHTS, Op.CRC_CELL))
_ALL_ROWS = Condition("", (), 0)


@dataclass(frozen=True, slots=True)
class ViewProgram:
    """``condition`` without lines admits all rows; without ``masks`` the values are those of the records."""

    view: TableView
    layout: RowLayout
    condition: Program
    masks: Masks | None = None

    @property
    def condition_texts(self) -> tuple[int, ...]:
        """The text columns whose values the condition reads."""
        steps = self.view.condition.steps if self.view.condition else ()
        columns = self.layout.table.columns
        reading = (step.column for step in steps if step.op in _TEXT_OPS)
        return tuple(sorted({at for at in reading if columns[at].type.is_text}))


def view_of(view: View, layout: RowLayout, *, folds: bool = False) -> TableView | None:
    """The view of the table with this structure; None if the table is not in the view. Fatal MR-5201."""
    try:
        return apply_view(view, layout.table, folds=folds)
    except RuleProblem as problem:
        table = layout.table
        omitted = f"; its rows omit {', '.join(table.omitted)}" if table.omitted else ""
        raise Fatal("MR-5201", f"{table.full_name}: {problem}{omitted}") from problem


def make_view_program(
    view: TableView, layout: RowLayout, keys: MaskKeys | None = None
) -> ViewProgram:
    """The program of ``view_of`` the same layout. ``keys`` are those of all tables; errors as ``make_masks``."""
    condition = make_program(view.condition or _ALL_ROWS)
    return ViewProgram(view, layout, condition, make_masks(view, layout, keys or MaskKeys()))
