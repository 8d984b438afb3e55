"""Checks a target set: whether apply can write to it, and what would make it slow or wrong.

The primary is found by the rule that a start uses (``drivers.mysql.primary``). Tables are compared with the schemas
that the task has learned so far (``consumer.tables.table_plan``), so a new task compares none. Nothing is written, so
missing privileges are found in the rights that the account holds. A server hides the databases on which an account
has no right, so the databases that need a grant are also taken from the documents and from the schemas.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace

from millrace.checks.clock import CLOCK_SQL, judge_clock, read_clock
from millrace.checks.requirement import Area, Level, Requirement, Subject, shortened
from millrace.consumer.records.row_schemas import RowSchemas, layout_of
from millrace.consumer.tables.cascades import inexact
from millrace.consumer.tables.filter import Route
from millrace.consumer.tables.table_plans import Catalogue, TablePlans
from millrace.consumer.target.progress import DATABASE, read_schemas
from millrace.consumer.target.stored_view import read_view
from millrace.drivers.kafka.reader import NoTopic, TopicReader
from millrace.drivers.mysql.catalog import CatalogTable, Inventory, TableKey, read_inventory
from millrace.drivers.mysql.connection import LOCK_WAIT_S, MySqlSession, connect, text_of
from millrace.drivers.mysql.grants import (
    EVERY_DATABASE,
    EVERYWHERE,
    Grant,
    HeldGrants,
    Role,
    as_grant_pattern,
    each,
    held_grants,
    needed_grants,
    shown,
)
from millrace.drivers.mysql.primary import primary_member
from millrace.errors import Fatal, MillraceError
from millrace.schemas.documents import ApplyTask, Reader, SetDocument, TableFilter
from millrace.schemas.gtid import Flavour
from millrace.schemas.view.collation import CollationWeights
from millrace.schemas.view.view import ALL_TABLES, View
from millrace.wording import counted

_SETTINGS_SQL = "SELECT @@local_infile, @@innodb_lock_wait_timeout, @@lower_case_table_names"


@dataclass(frozen=True, slots=True)
class TargetUse:
    """How a set is used: its apply tasks. ``other_grants``: those that the account needs for other roles.

    ``source_folds``: a source that feeds it stores table names in lower case; None if that is unknown. ``captured``: by
    task, the tables of the capture tasks that write its topic.
    """

    tasks: Sequence[ApplyTask] = ()
    other_grants: Callable[[Flavour], Sequence[Grant]] = lambda _: ()
    source_folds: bool | None = None
    captured: Mapping[str, Sequence[TableFilter]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Settings:
    """Settings of the server, as one of our sessions sees them."""

    local_infile: int
    lock_wait_s: int
    lower_case_table_names: int


def check_target(document: SetDocument, use: TargetUse) -> Iterator[Requirement]:
    """Find the primary and ask it. Errors: see ``members``."""
    whole = Subject(Area.TARGET, f"set {document.name}")
    endpoint = primary_member(document)
    subject = Subject(Area.TARGET, endpoint.name)
    with connect(endpoint) as session:
        members = f"{subject.name} of {counted(len(document.members), 'member')}"
        yield whole.ok("one writable primary", f"{members}, tls: {document.tls.mode}")
        yield from judge_settings(subject, _settings(session), use)
        yield judge_clock(
            subject, read_clock(lambda: float(text_of(session.query(CLOCK_SQL)[0][0])))
        )
        grants = held_grants(session)
        views = [task.view for task in use.tasks] or [ALL_TABLES]
        # they say whether the constants of merged tables differ
        with_folds = any(rule.merge for view in views for rule in view.rules)
        inventory = read_inventory(session, with_folds=with_folds)
        admitted = {key: table for key, table in inventory.tables.items() if _admits(views, key)}
        texts = {task.name: _schemas(session, task) for task in use.tasks}
        seen = {key[0] for key in admitted}
        databases = seen.union(
            *(written_databases(task, use, texts[task.name], inventory) for task in use.tasks)
        )
        patterns = [as_grant_pattern(name) for name in sorted(databases)]
        needed = needed_grants(Role.TARGET, session.flavour, patterns)
        kept = needed
        if any(name.partition(".")[0] == "*" for view in views for name in view.target_patterns):
            kept = needed_grants(Role.TARGET, session.flavour, [EVERY_DATABASE])
        others = use.other_grants(session.flavour)
        yield from judge_grants(subject, grants, needed, others, kept=kept)
        yield from judge_tables(subject, inventory, admitted)
        for task in use.tasks:
            weighing = replace(task.view, collations=_weights(session, task))
            weighed = replace(task, view=weighing)
            yield from judge_schemas(subject, weighed, texts[task.name], inventory)
            yield from judge_safe_mode(subject, task, inventory)


def written_databases(
    task: ApplyTask, use: TargetUse, texts: Sequence[str], inventory: Inventory
) -> set[str]:
    """The databases that the task writes, as far as that is known without a look at the target.

    It names them, has the schema of a table there (``texts``), or a capture task of its topic names them.
    """
    captured = _named_databases(
        pattern for tables in use.captured.get(task.name, ()) for pattern in tables.include
    )
    tables = [layout.table for layout in map(layout_of, texts)]
    route = Route(task.view, inventory.folds_names)
    known = (route.target_of(each.database, each.table) for each in tables)
    found = {
        *_named_databases(task.view.target_patterns),
        *(name[0] for name in known if name is not None),
    }
    if route.only_chooses:
        found |= {name for name in captured if _admits_a_table_of(task.view, name)}
    return {inventory.key(name, "")[0] for name in found}


def _settings(session: MySqlSession) -> Settings:
    ((local_infile, lock_wait_s, folds),) = session.query(_SETTINGS_SQL)
    return Settings(int(text_of(local_infile)), int(text_of(lock_wait_s)), int(text_of(folds)))


def judge_settings(subject: Subject, found: Settings, use: TargetUse) -> Iterator[Requirement]:
    """MR-4171, MR-4172 and MR-4173."""
    if found.local_infile:
        yield subject.ok("local_infile", "ON")
    else:
        yield subject.warn("MR-4171", "local_infile", found="OFF", wanted="ON")
    if found.lock_wait_s < LOCK_WAIT_S:
        yield subject.warn(
            "MR-4173",
            "innodb_lock_wait_timeout",
            found=f"{found.lock_wait_s} s in our session",
            wanted=f"{LOCK_WAIT_S} s",
        )
    else:
        yield subject.ok("innodb_lock_wait_timeout", f"{found.lock_wait_s} s in our session")
    folds = found.lower_case_table_names
    if folds and use.source_folds is False:
        yield subject.warn(
            "MR-4172", "lower_case_table_names", found=str(folds), wanted="0, as on the source"
        )
    elif not folds and use.source_folds:
        yield subject.fail(
            "MR-4172", "lower_case_table_names", found="0", wanted="1, as on the source"
        )
    else:
        yield subject.ok("lower_case_table_names", str(folds))


def judge_grants(
    subject: Subject,
    held: HeldGrants,
    needed: Sequence[Grant],
    allowed: Sequence[Grant],
    *,
    kept: Sequence[Grant] = (),
) -> Iterator[Requirement]:
    """MR-5007 and MR-4161. ``allowed``: what else the account may have.

    ``kept``: what the fix of MR-4161 must leave, ``needed`` if empty. A task that includes every database may meet one
    that does not exist yet.
    """
    left = kept or needed
    if missing := held.missing(needed):
        yield subject.fail("MR-5007", "privileges", found=str(missing), fix=missing.fix)
    elif any(grant.scope not in (EVERYWHERE, DATABASE) for grant in needed):
        yield subject.ok("privileges", "sufficient")
    else:
        yield subject.ok("privileges", "sufficient; which databases are written is not known yet")
    if excess := held.excess([*needed, *allowed]):
        yield subject.warn(
            "MR-4161",
            "superfluous privileges",
            found=shortened(each(excess)),
            wanted=shown(left),
            fix=held.revoking(excess, [*left, *allowed]),
        )
    else:
        yield subject.ok("superfluous privileges", "none")


def judge_tables(
    subject: Subject, inventory: Inventory, admitted: dict[TableKey, CatalogTable]
) -> Iterator[Requirement]:
    """MR-5018, MR-4164 and MR-5015 about tables that tasks may write."""
    triggers = [
        f"{'.'.join(key)}.{name}"
        for key, names in inventory.triggers.items()
        if key in admitted
        for name in names
    ]
    if triggers:
        yield subject.warn("MR-5018", "triggers", found=shortened(triggers), wanted="none")
    else:
        yield subject.ok("triggers", "none on tables of the tasks")
    keyless = [".".join(key) for key, table in admitted.items() if not has_usable_key(table)]
    if keyless:
        yield subject.warn(
            "MR-4164",
            "unique keys",
            found=f"none that is never NULL in {shortened(keyless)}",
            wanted="in every table",
        )
    else:
        yield subject.ok("unique keys", f"in each of {counted(len(admitted), 'table')}")
    others = [
        f"{'.'.join(key)} ({table.engine})"
        for key, table in admitted.items()
        if not table.takes_rows
    ]
    if others:
        yield subject.fail("MR-5015", "engines", found=shortened(others), wanted="InnoDB")
    else:
        yield subject.ok("engines", "transactional")


def has_usable_key(table: CatalogTable) -> bool:
    """Whether a whole unique key is never NULL, so that rows need not be compared by all columns."""
    return table.is_sequence or any(
        key.is_whole and not any(table.columns[name].nullable for name in key.columns)
        for key in table.unique_keys
    )


def judge_schemas(
    subject: Subject, task: ApplyTask, texts: Sequence[str], inventory: Inventory
) -> Iterator[Requirement]:
    """MR-5013, MR-5015, MR-5208, … for each table of the topic that does not fit its newest schema, as a warning.

    A missing table is no finding: the topic may have dropped it. The same can be true of a column. The target stores
    schemas without the place of their last row: after a statement that gave a table a former structure back, the
    newest one is not that of its rows.
    """
    schemas = RowSchemas(dict(enumerate(texts)))
    route = Route(task.view, inventory.folds_names)
    plans = TablePlans(Catalogue("", schemas, inventory, route))
    newest = {plans.state_name(slot): slot for slot in range(len(texts)) if plans.admits(slot)}
    known = [slot for slot in newest.values() if plans.has_table(slot)]
    what, wanted = (
        f"tables of {task.name}",
        "as in the newest schema, unless a later statement has changed it back or dropped it",
    )
    is_fit = True
    for slot in known:
        try:
            plans.table_plan(slot)
        except MillraceError as error:
            is_fit = False
            yield replace(subject.error(what, error, wanted=wanted), level=Level.WARN)
    if is_fit:
        yield subject.ok(what, f"{len(known)} fit their schemas" if known else "none known yet")


def judge_safe_mode(
    subject: Subject, task: ApplyTask, inventory: Inventory
) -> Iterator[Requirement]:
    """MR-5025 about the tables of a task with safe mode. Whether the source logs cascades is not known."""
    if not task.rules.safe_mode.until_gtid:
        return
    what = f"cascades in safe mode of {task.name}"
    parents = [key for key in sorted(inventory.tables) if _admits([task.view], key)]
    if found := inexact(inventory.foreign_keys, parents):
        wanted = "none, unless the source logs cascades (MySQL 9.6 and later)"
        yield subject.warn("MR-5025", what, found=shortened(found), wanted=wanted)
    else:
        yield subject.ok(what, "all can be repeated")


def _schemas(session: MySqlSession, task: ApplyTask) -> list[str]:
    """The texts that the task has stored, by ID; none before its first start."""
    try:
        known = read_schemas(session, task.name).texts
    except Fatal as error:
        if error.code not in ("MR-5012", "MR-5007"):
            raise
        return []
    return [known[schema_id] for schema_id in sorted(known)]


def _weights(session: MySqlSession, task: ApplyTask) -> tuple[CollationWeights, ...]:
    """How the source weighs the literals of the view's conditions, as far as the task has asked."""
    try:
        stored = read_view(session, task.name)
    except Fatal as error:
        if error.code not in ("MR-5012", "MR-5007"):
            raise
        return ()
    return stored.weights if stored is not None else ()


def _admits(views: Sequence[View], key: TableKey) -> bool:
    """Whether a task may write a table of the target."""
    return key[0] != DATABASE and any(view.may_have(*key) for view in views)


def _admits_a_table_of(view: View, database: str) -> bool:
    return view.admits_database(database) and f"{database}.*" not in view.left_out_patterns


def _named_databases(patterns: Iterable[str]) -> set[str]:
    """The databases that the patterns name without a wildcard; they may be missing yet."""
    names = {pattern.partition(".")[0] for pattern in patterns}
    return {name for name in names if not set("*?") & set(name)}


def check_readable(task: Reader, *, creator: str) -> Iterator[Requirement]:
    """MR-3501 if the topic can't be read. ``creator``: a capture task that creates it; empty if none is known."""
    subject = Subject(Area.KAFKA, f"topic {task.source.topic}")
    what = f"{task.name} can read it"
    with closing(TopicReader(task.source.brokers, task.source.topic)) as reader:
        try:
            ends = reader.ends()
        except MillraceError as error:
            if not creator or not isinstance(error, NoTopic):
                yield subject.error(what, error)
            else:
                yield subject.ok(what, f"once {creator} has created it")
            return
    yield subject.ok(what, f"offsets {ends.low} to {ends.stable}")
