"""Foreign keys of a source that does not log what their cascades change: whether the target repeats each of them.

InnoDB changes the child rows by itself (MariaDB, MySQL before 9.6). The topic has the change of the parent row alone,
so child rows follow on the target only if

    the child and its parent are both captured and in the view
    the view leaves out no row of the parent by ``where``
    ``where`` of the child reads no column of the foreign key
    the target has the foreign key, too, with the same actions

Otherwise child rows stay that the source has deleted or changed. Nothing is asked if no table is in question.
"""

from collections.abc import Iterable, Iterator
from dataclasses import replace

from millrace.checks.requirement import Area, Requirement, Subject, shortened
from millrace.consumer.checks.load import RowsUse
from millrace.consumer.load.plan import logs_cascades
from millrace.consumer.load.tables import Admission
from millrace.consumer.tables.filter import Route
from millrace.drivers.mysql.catalog import ForeignKey, Inventory, TableKey, read_inventory
from millrace.drivers.mysql.connection import Side, connect
from millrace.drivers.mysql.primary import primary_member
from millrace.schemas.view.expression import columns_of, parse
from millrace.schemas.view.view import Match
from millrace.wording import counted

_WHAT = "cascades that the source does not log"


def check_cascades(use: RowsUse) -> Iterator[Requirement]:
    """Ask both sets. Errors: see ``drivers.mysql.primary``."""
    subject = Subject(Area.SOURCE, f"tables of {use.task.name}")
    member = primary_member(use.source, for_writing=False, side=Side.SOURCE)
    with connect(member) as session:
        if logs_cascades(session):
            yield subject.ok(_WHAT, "none: it logs all")
            return
        source = read_inventory(session, with_folds=False)
    if not any(foreign.cascades for foreign in source.foreign_keys):
        yield subject.ok(_WHAT, "none that the account sees")
        return
    with connect(primary_member(use.target, for_writing=False)) as session:
        target = read_inventory(session, with_folds=False)
    captured = replace(use.capture.tables, hidden=use.source.heartbeat.table)
    yield from judge_cascades(subject, Admission(captured, use.task.view), source, target)


def judge_cascades(
    subject: Subject, admission: Admission, source: Inventory, target: Inventory
) -> Iterator[Requirement]:
    """MR-4193: a failure if the parent's changes never reach the target, else a warning."""
    is_applied = admission.admits(source, target)
    route = Route(admission.applied, target.folds_names)
    asked = [key for key in source.foreign_keys if key.cascades and is_applied(key.child)]
    lost = [_shown(key) for key in asked if not is_applied(key.parent)]
    doubtful = [
        f"{_shown(key)}: {why}"
        for key in asked
        if is_applied(key.parent) and (why := _why_doubtful(key, route, target))
    ]
    if lost:
        wanted = "the parent of each child in the view"
        yield subject.fail("MR-4193", _WHAT, found=shortened(lost), wanted=wanted)
    if doubtful:
        wanted = "all rows of the parent, and the foreign key on the target"
        yield subject.warn("MR-4193", _WHAT, found=shortened(doubtful), wanted=wanted)
    if not lost and not doubtful:
        yield subject.ok(_WHAT, f"the target repeats {counted(len(asked), 'foreign key')}")


def _why_doubtful(foreign: ForeignKey, route: Route, target: Inventory) -> str:
    """Why rows of the child may stay as they were; "" if they follow. Both tables are in the view."""
    child, parent = (_match(route, key) for key in (foreign.child, foreign.parent))
    if parent.rule.where:
        return f"the view leaves out rows of {'.'.join(foreign.parent)}"
    read = _read_by(child) & {name.lower() for name in foreign.columns}
    if read:
        return f"its condition reads {', '.join(sorted(read))}"
    wanted = _viewed(foreign, child, parent, target)
    there = {wanted.child, wanted.parent} <= target.tables.keys()
    if there and not any(_is_same(wanted, known) for known in target.foreign_keys):
        return "the target does not have it"
    return ""


def _match(route: Route, key: TableKey) -> Match:
    match = route.view.match(*key, folds=route.folds_names)
    assert match is not None, "it is in the view"
    return match


def _read_by(match: Match) -> set[str]:
    """The columns that its condition reads, in lower case."""
    return (
        {name.lower() for name in columns_of(parse(match.rule.where))}
        if match.rule.where
        else set()
    )


def _viewed(foreign: ForeignKey, child: Match, parent: Match, target: Inventory) -> ForeignKey:
    """The foreign key with the names that the target should have for it."""
    return replace(
        foreign,
        child=target.key(*child.name),
        columns=_renamed(child, foreign.columns),
        parent=target.key(*parent.name),
        parent_columns=_renamed(parent, foreign.parent_columns),
    )


def _renamed(match: Match, names: Iterable[str]) -> tuple[str, ...]:
    new = {old.lower(): name for old, name in match.rule.rename}
    return tuple(new.get(name.lower(), name).lower() for name in names)


def _is_same(wanted: ForeignKey, known: ForeignKey) -> bool:
    """Whether a foreign key of the target links the same columns with the same actions, in any order."""
    pairs = zip(map(str.lower, known.columns), map(str.lower, known.parent_columns), strict=True)
    return (wanted.child, wanted.parent, wanted.actions) == (
        known.child,
        known.parent,
        known.actions,
    ) and set(zip(wanted.columns, wanted.parent_columns, strict=True)) == set(pairs)


def _shown(foreign: ForeignKey) -> str:
    link = f"{'.'.join(foreign.child)} follows {'.'.join(foreign.parent)}"
    return f"{link} by constraint {foreign.name}"
