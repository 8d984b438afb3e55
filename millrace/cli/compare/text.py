"""The result of ``millrace compare`` as text and as one JSON object."""

from collections.abc import Sequence
from itertools import groupby
from typing import TYPE_CHECKING

from millrace.cli.control import console, print_json
from millrace.wording import counted

if TYPE_CHECKING:
    from millrace.consumer.compare import Change, Comparison
    from millrace.consumer.compare.members import ReadMember
    from millrace.consumer.compare.result import Difference

NOT_WAITED = (
    "Compared without waiting: a change that the task has not applied yet is a difference. Execute a statement below"
    " only if a comparison without --now lists it, too."
)
STRUCTURE_MAX = 20  # lines for one table


def print_plain(
    task: str, origin: "ReadMember", found: "Comparison", *, has_waited: bool = True
) -> None:
    """Print one JSON object. ``has_waited``: see ``note_of``."""
    from millrace.consumer.compare.show import note_of

    plain = {
        "task": task,
        "source": origin.name,
        "why_primary": origin.why or None,
        "waited": has_waited,
        "tables": found.tables,
        "rows": found.rows,
        "differences": found.difference_count,
        "unsettled": found.unsettled,
        "repaired": found.repaired,
        "structure_differences": found.structure_count,
        "is_equal": found.is_equal,
        "details": [
            {
                "table": one.table,
                "what": one.what,
                "key": one.key,
                "source": one.rows.source or None,
                "target": one.rows.target or None,
                "repair": one.rows.repair or None,
                "note": note_of(one, has_waited=has_waited) or None,
            }
            for one in found.differences
        ],
        "left_out": [{"table": table, "why": why} for table, why in found.left_out.items()],
        "kept_aside": [{"table": table, "rows": rows} for table, rows in found.kept.items()],
        "columns_left_out": [
            {"table": table, "columns": list(columns)} for table, columns in found.unread.items()
        ],
        "structure": [
            {
                "table": one.table,
                "place": one.place,
                "source": one.source or None,
                "target": one.target or None,
                "only_named": one.is_only_named,
            }
            for one in found.structure
        ],
    }
    print_json(plain)


def print_text(origin: "ReadMember", found: "Comparison", *, has_waited: bool = True) -> None:
    from millrace.consumer.compare.show import note_of
    from millrace.consumer.topic.tail import printable

    out = console()
    lines = [f"The primary {origin.name} is read: {origin.why}"] if origin.why else []
    lines += [NOT_WAITED] if found.differences and not has_waited else []
    for table, listed in groupby(found.differences, key=lambda one: one.table):
        more = found.counts[table]
        for one in listed:
            lines += _lines(one, note_of(one, has_waited=has_waited))
            more -= 1
        lines += [f"{table}: and {more:,} more"] if more > 0 else []
    for table, changes in groupby(found.structure, key=lambda one: one.table):
        lines += _structure(table, list(changes))
    lines += [f"{table}: not compared: {why}" for table, why in found.left_out.items()]
    lines += [
        f"{table}: columns not compared: {', '.join(columns)}"
        for table, columns in found.unread.items()
    ]
    lines += [
        f"{table}: {counted(rows, 'row')} kept aside: `millrace conflict list`"
        for table, rows in found.kept.items()
    ]
    for line in lines:
        out.print(printable(line), markup=False, highlight=False, soft_wrap=True)
    verdict = _verdict(found)
    if found.repaired:
        verdict += f", {found.repaired:,} repaired"
    if found.unsettled:
        verdict += f", {counted(found.unsettled, 'row')} unsettled"
    if found.structure_count:
        verdict += f", {counted(found.structure_count, 'difference')} of structure"
    if found.unread:
        verdict += f", {counted(sum(map(len, found.unread.values())), 'column')} not compared"
    if found.kept:
        verdict += f", {counted(sum(found.kept.values()), 'row')} kept aside"
    tables, rows = counted(found.tables, "table"), counted(found.rows, "row")
    out.print(f"{tables}, {rows}: {verdict}")


def _verdict(found: "Comparison") -> str:
    """About the rows. It is only "equal" if nothing was left out."""
    if found.difference_count:
        return counted(found.difference_count, "difference")
    if found.unsettled:
        return "no difference found"
    return "equal" if found.is_equal else "rows equal"


def _structure(table: str, changes: Sequence["Change"]) -> list[str]:
    """The lines for the differences of one table's structure, or of a database."""
    lines = []
    for one in changes[:STRUCTURE_MAX]:
        lines.append(f"{table}: structure: {one.place}")
        lines += [f"  {name}  {text or '-'}" for name, text in _texts(one)]
    more = len(changes) - STRUCTURE_MAX
    return [*lines, f"{table}: and {more:,} more of structure"] if more > 0 else lines


def _texts(one: "Change") -> tuple[tuple[str, str], tuple[str, str]]:
    return ("source", one.source), ("target", one.target)


def _lines(one: "Difference", note: str) -> list[str]:
    both = (("source", one.rows.source), ("target", one.rows.target))
    lines = [f"{one.table}: {one.what}: {one.key}"]
    lines += [f"  {name}  {text}" for name, text in both if text]
    notes = (("repair", one.rows.repair), ("note", note))
    return [*lines, *(f"  {name:6}  {text}" for name, text in notes if text)]
