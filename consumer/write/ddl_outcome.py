"""Whether a DDL statement was executed, from the states of its objects before it and now. Pure.

    decide      DONE, EXECUTE, or UNDECIDED: an operator decides
    State       what was read, and the server that it was read on

InnoDB's ids have a meaning on one server only, and other statements change them, too (OPTIMIZE, ALTER). On the server
that they were read on:

    ids and definitions as before                           not executed
    ids moved between tables as the statement moves them    executed

Otherwise definitions decide, on the same server or on another one, such as a promoted replica. There the statement may
be lost, or may have been replicated. A rule is used only if it is exact:

    creates, drops, renames a table or database         the object is there, or not
    adds, drops, renames columns, keys, partitions …    all of these names are there, or none (ALTER TABLE is atomic)
    empties a table or partition                        there are no rows, or rows
    has the same effect if it is executed twice         executed, perhaps again: ENGINE=…, MODIFY, IF NOT EXISTS
    anything else                                       UNDECIDED

A definition that differs in more than the statement names is UNDECIDED: another session may have changed it.
Not done here: reading the states (``consumer.target.table_state``), decisions of an operator (``consumer.write.ddl``).
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from millrace.consumer.target.table_state import NO_IDS, SPACES
from millrace.schemas.sql.alter_clauses import Clauses, Item, clauses_of
from millrace.schemas.sql.statement import APPLIED_KINDS, Kind, Statement
from millrace.schemas.sql.tokens import DEFAULT_MODE, SqlMode, tokenize

DONE, EXECUTE, UNDECIDED = "done", "execute", ""
SHOWN_CHARS = 600  # of a state in an error: enough for a table of ten columns

Objects = Mapping[str, str]  # the state of each table and database by name; "": missing


@dataclass(frozen=True, slots=True)
class State:
    """The state of a statement's objects, and the server that it was read on ("": not known)."""

    server: str
    objects: Objects
    is_empty: bool = False  # nothing is left that the statement would truncate

    def shown(self) -> str:
        """For the operator."""
        named = [f"{name}: {text or 'missing'}" for name, text in self.objects.items()]
        text = "; ".join(named)
        more = " …" if len(text) > SHOWN_CHARS else ""
        return f"on server {self.server or 'unknown'}: {text[:SHOWN_CHARS]}{more}"


def is_understood(statement: Statement) -> bool:
    """Whether apply may execute it; otherwise an operator decides."""
    return statement.kind in APPLIED_KINDS and not statement.selects_rows


def emptied_by(statement: Statement, sql: str, mode: SqlMode) -> tuple[str, ...] | None:
    """The partitions of the first table that the statement empties, () for the whole table; None: it empties none."""
    if statement.kind is Kind.TRUNCATE_TABLE or _replaces(statement, sql, mode):
        return ()
    partitions = clauses_of(statement, sql, mode).truncated
    if not partitions:
        return None
    return () if [name.upper() for name in partitions] == ["ALL"] else partitions


def _replaces(statement: Statement, sql: str, mode: SqlMode) -> bool:
    words = [token.word for token in tokenize(sql, mode)[:4]]
    return statement.kind is Kind.CREATE_TABLE and words == ["CREATE", "OR", "REPLACE", "TABLE"]


def decide(
    before: State, now: State, statement: Statement, sql: str, mode: SqlMode = DEFAULT_MODE
) -> str:
    """DONE, EXECUTE or UNDECIDED, for the text and the mode that the statement was classified from."""
    was, is_ = before.objects, now.objects
    if not is_understood(statement):
        return UNDECIDED
    if statement.kind is Kind.DROP_DATABASE:
        return EXECUTE if any(is_.values()) else DONE  # a half dropped database is dropped again
    if was.keys() != is_.keys():
        return UNDECIDED  # an earlier version of Millrace named other objects
    has_ids = _has_ids(before, now)
    if has_ids and was == is_:
        return EXECUTE
    if statement.verb in ("CREATE TABLE", "CREATE SEQUENCE", "CREATE DATABASE"):
        return _created(before, now, has_ids=has_ids)
    if statement.verb in ("DROP TABLE", "DROP SEQUENCE"):
        return _dropped(was, is_)
    if statement.kind is Kind.RENAME_TABLE:
        return _renamed(was, is_, statement, has_ids=has_ids)
    if statement.kind is Kind.TRUNCATE_TABLE:
        return DONE if now.is_empty else EXECUTE
    if statement.kind in (Kind.ALTER_DATABASE, Kind.SEQUENCE):
        # it sets values: the same effect if it is executed twice
        return DONE if has_ids else EXECUTE
    clauses = clauses_of(statement, sql, mode)
    if clauses.moves:
        is_moved = any(bool(was[name]) != bool(is_[name]) for name in was)
        return DONE if is_moved else EXECUTE
    if not all(was.values()) or not all(is_.values()):
        return UNDECIDED
    if clauses.swaps:
        return _swapped(was, is_) if has_ids else UNDECIDED
    return _altered(before, now, clauses, has_ids=has_ids)


def _has_ids(before: State, now: State) -> bool:
    """Whether both were read on one server, with ids of the same kind."""
    if not before.server or before.server != now.server:
        return False
    states = [*before.objects.values(), *now.objects.values()]
    if any(f"\n-- {NO_IDS}" in state for state in states):
        return False
    of_tables = [state for state in states if "\n-- " in state]
    # states with both forms: one is of an earlier version
    return len({f"\n-- {SPACES}" in state for state in of_tables}) <= 1


def _created(before: State, now: State, *, has_ids: bool) -> str:
    if not all(now.objects.values()):
        return EXECUTE  # MariaDB can die between the two halves of CREATE OR REPLACE
    if not any(before.objects.values()):
        return DONE
    is_replaced = has_ids and now.is_empty and _differences(before.objects, now.objects)
    return DONE if is_replaced else EXECUTE  # OR REPLACE, IF NOT EXISTS: the same effect twice


def _dropped(was: Objects, is_: Objects) -> str:
    there = [name for name, state in was.items() if state]
    left = [name for name in there if is_[name]]
    return EXECUTE if left == there else UNDECIDED if left else DONE


# ---- tables that change their names ---------------------------------------------------------------


def _renamed(was: Objects, is_: Objects, statement: Statement, *, has_ids: bool) -> str:
    """Move the states as the statement does, and compare what a rename keeps."""
    wanted = dict(was)
    names = [f"{name.database}.{name.table}" for name in statement.tables]
    for old, new in zip(names[::2], names[1::2], strict=True):
        wanted[new], wanted[old] = wanted[old], ""
    kept: list[Callable[[str], object]] = [bool, *([_numbers] if has_ids else []), _body]
    for part in kept:
        before, after, now = (
            [part(objects[name]) for name in was] for objects in (was, wanted, is_)
        )
        if before == after:
            continue  # the tables are swapped and this part of them is equal
        if now == after:
            return DONE
        if now == before:
            return EXECUTE
        if part is not _numbers:  # new ids: a table was rebuilt
            return UNDECIDED
    return UNDECIDED


def _swapped(was: Objects, is_: Objects) -> str:
    """EXCHANGE PARTITION keeps the definitions and moves the ids."""
    before, now = (
        sorted(number for state in objects.values() for number in _numbers(state))
        for objects in (was, is_)
    )
    return DONE if before == now and not _differences(was, is_) else UNDECIDED


def _numbers(state: str) -> list[str]:
    return re.findall(r"=(\d+)(?=, |$)", state.rpartition("\n-- ")[2])


def _definition(state: str) -> list[str]:
    """The lines after the table's name, without ids. A sequence keeps its row."""
    return state.rpartition("\n-- ")[0].splitlines()[1:]


def _body(state: str) -> list[str]:
    """The definition without constraints, whose names may contain the table's name."""
    lines = [line.rstrip(",") for line in _definition(state)]
    return [line for line in lines if not line.startswith("  CONSTRAINT ")]


# ---- tables that are altered ----------------------------------------------------------------------


def _altered(before: State, now: State, clauses: Clauses, *, has_ids: bool) -> str:
    differences = _differences(before.objects, now.objects)
    is_explained = all(_names(clauses, item, texts) for item, texts in differences.items())
    if clauses.shows:
        was, is_ = (
            {item for state in objects.values() for item in _items(state)}
            for objects in (before.objects, now.objects)
        )
        if not _any_changed(clauses, was, is_):
            return EXECUTE
        return DONE if is_explained and _all_changed(clauses, was, is_) else UNDECIDED
    if has_ids and differences:
        return DONE if is_explained else UNDECIDED
    if not clauses.is_repeatable:
        return UNDECIDED
    is_rebuilt = has_ids and clauses.names <= {"engine", "force", _engine(now)}
    is_truncated = clauses.truncated and now.is_empty
    return DONE if is_rebuilt or is_truncated else EXECUTE


def _engine(state: State) -> str:
    (text,) = state.objects.values()
    found = re.search(r"^\) ENGINE=(\w+)", text, re.MULTILINE)
    return found[1].lower() if found else ""


_LINE = re.compile(
    r"(?:(?P<key>(?:[A-Z]+ )?KEY) |(?P<constraint>CONSTRAINT) |(?P<partition>(?:SUB)?PARTITION) )?"
    r"(?:`(?P<quoted>(?:[^`]|``)*)`|(?P<word>[^\s`(]+))"
)


def _items(state: str) -> dict[Item, str]:
    """The lines of a definition by what they define; ("rest", "") has all other lines."""
    found: dict[Item, str] = {}
    rest = []
    for line in _definition(state):
        text = line.lstrip(" (").rstrip(",")
        item = _item(text)
        if item is None:
            rest.append(text)
        else:  # the last partition ends the list
            found[item] = text.rstrip(")*/ ") if item[0] == "partition" else text
    return found | {("rest", ""): "\n".join(rest)}


def _item(text: str) -> Item | None:
    if text.startswith("PRIMARY KEY"):
        return ("key", "primary")
    line = _LINE.match(text)
    if line is None or (line["quoted"] is None and (not line["partition"] or line["word"] == "BY")):
        return None
    kind = next((kind for kind in ("key", "constraint", "partition") if line[kind]), "column")
    name = line["word"] if line["quoted"] is None else line["quoted"].replace("``", "`")
    return kind, name.lower()


def _differences(was: Objects, is_: Objects) -> dict[Item, str]:
    """The differences of the definitions, with both texts."""
    found = {}
    for name in was:
        before, now = _items(was[name]), _items(is_[name])
        for item in {**before, **now}:
            if before.get(item) != now.get(item):
                found[item] = f"{before.get(item, '')}\n{now.get(item, '')}"
    return found


def _names(clauses: Clauses, item: Item, texts: str) -> bool:
    """Whether the statement names the item, or a part of it. An unnamed key or constraint counts as named."""
    kind, name = item
    if kind == "rest":
        return clauses.has_options
    parts = [part.replace("``", "`").lower() for part in re.findall(r"`((?:[^`]|``)*)`", texts)]
    return (
        kind in clauses.unnamed or name in clauses.names or any(p in clauses.names for p in parts)
    )


def _has(items: set[Item], item: Item) -> bool:
    kind, name = item  # DROP CONSTRAINT drops a unique key, too
    return item in items or (kind == "constraint" and ("key", name) in items)


def _count(items: set[Item], kind: str) -> int:
    return sum(each == kind for each, _ in items)


def _any_changed(clauses: Clauses, was: set[Item], is_: set[Item]) -> bool:
    """Whether a name that the statement adds is there, or one that it drops is not."""
    return (
        any(_has(is_, item) for item in clauses.added)
        or not all(_has(is_, item) for item in clauses.dropped)
        or any(_count(is_, kind) > _count(was, kind) for kind in clauses.unnamed)
    )


def _all_changed(clauses: Clauses, was: set[Item], is_: set[Item]) -> bool:
    """Whether all names were added and dropped."""
    return (
        all(_has(is_, item) and not _has(was, item) for item in clauses.added)
        and not any(_has(is_, item) for item in clauses.dropped)
        and all(_count(is_, kind) > _count(was, kind) for kind in clauses.unnamed)
    )
