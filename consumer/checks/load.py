"""Checks what `start: load` would do now: the member to read, the rights there, and the tables. Changes nothing.

The rules are those of a load (``consumer.load``). A task that has progress loads nothing.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from millrace.checks.requirement import Area, Requirement, Subject, shortened
from millrace.consumer.load.plan import (
    Ends,
    Sides,
    check_structure,
    missing_rights,
    read_sides,
    table_sizes,
)
from millrace.consumer.load.prepare import has_rows
from millrace.consumer.load.source import choose_source
from millrace.consumer.load.tables import Admission, missing_on
from millrace.consumer.target import loads
from millrace.consumer.target.progress import Owner, read_mark
from millrace.consumer.view.source_texts import compares_texts, read_source_texts
from millrace.drivers.mysql.catalog import TableKey
from millrace.drivers.mysql.connection import MySqlSession, connect
from millrace.drivers.mysql.primary import primary_member
from millrace.errors import Fatal
from millrace.schemas.documents import ApplyTask, CaptureTask, Directives, SetDocument
from millrace.wording import counted


@dataclass(frozen=True, slots=True)
class RowsUse:
    """An apply task, and where its rows come from and go. ``directives``: an operator's wishes about the source set."""

    task: ApplyTask
    capture: CaptureTask
    source: SetDocument
    target: SetDocument
    directives: Directives


def check_load(use: RowsUse) -> Iterator[Requirement]:
    """Ask both sets. Errors: see ``consumer.load.source`` and ``drivers.mysql.primary``."""
    task = use.task
    subject = Subject(Area.SOURCE, f"load of {task.name}")
    with connect(primary_member(use.target, for_writing=False)) as target:
        if _has_progress(target, task):
            yield subject.ok("start: load", f"not needed: {use.target.name} has progress")
            return
        from_primary = task.rules.load.from_primary
        member = choose_source(use.source, use.directives, from_primary=from_primary)
        yield subject.ok("a member to read", f"{member.name}, lag {member.lag_s:g} s")
        with connect(member.endpoint) as source:
            view = task.view
            if compares_texts(view):
                texts = read_source_texts(view, (), use.source)
                view = replace(view, collations=texts.weights)
            admission = Admission.of(use.source, use.capture, replace(task, view=view))
            if missing := missing_rights(source, admission):
                yield subject.fail("MR-5007", "privileges", found=str(missing), fix=missing.fix)
            else:
                yield subject.ok("privileges", "sufficient")
            sides = read_sides(Ends(source, target, Owner(task.name, 0, 0)), admission)
            copied = _copied(target, task)
            if copied:
                yield subject.ok("start: load", f"under way: {counted(len(copied), 'table')}")
            yield from _judge_tables(subject, sides, target, copied)
            yield _announced(subject, source, sides)


def _has_progress(target: MySqlSession, task: ApplyTask) -> bool:
    try:
        return read_mark(target, task.name) is not None
    except Fatal as exc:
        if exc.code in ("MR-5012", "MR-5013"):  # no task has run on this target
            return False
        raise
    finally:
        target.rollback()


def _copied(target: MySqlSession, task: ApplyTask) -> frozenset[TableKey]:
    """The tables that a load of the task has begun to copy: the rows on the target are its own."""
    try:
        return frozenset(loads.read_tables(target, task.name))
    except Fatal as exc:
        if exc.code in ("MR-5012", "MR-5013"):  # no task has run on this target
            return frozenset()
        raise
    finally:
        target.rollback()


def _judge_tables(
    subject: Subject, sides: Sides, target: MySqlSession, copied: frozenset[TableKey]
) -> Iterator[Requirement]:
    """MR-5091, and the errors of ``check_structure``, for tables that the target has.

    Those that are being copied may have rows.
    """
    filled = []
    for table in sides.tables:
        there = sides.target.tables.get(table.place)
        if there is None:
            continue
        try:
            check_structure(table, sides)
        except Fatal as error:
            yield subject.error("structure on the target", error)
        is_own = there.is_sequence or table.key in copied
        if not is_own and has_rows(target, table.place):
            filled.append(table.shown)
    if filled:
        wanted = "empty tables"
        yield subject.fail("MR-5091", "rows on the target", found=shortened(filled), wanted=wanted)


def _announced(subject: Subject, source: MySqlSession, sides: Sides) -> Requirement:
    """The tables that will be loaded."""
    sizes = table_sizes(source)
    rows = sum(sizes.get(table.table.key, (0, 0))[0] for table in sides.tables)
    parts = [f"{counted(len(sides.tables), 'table')} with about {rows:,} rows"]
    if missing := missing_on(sides.target, sides.tables):
        parts.append(f"{len(missing)} of them will be created")
    if snapshots := [table.name for table in sides.tables if table.why_snapshot]:
        parts.append(f"in one snapshot each: {shortened(snapshots)}")
    return subject.ok("tables to load", "; ".join(parts))
