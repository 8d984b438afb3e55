"""The effects of ALTER TABLE, CREATE INDEX, DROP INDEX on columns, keys and rows, in the order of the statement. Pure.

    ADD c INT                        ADD_COLUMN c
    CHANGE c d BIGINT                RENAME_COLUMN c to d, MODIFY_COLUMN c with the words (BIGINT,)
    ADD c INT PRIMARY KEY            ADD_COLUMN c, CHANGE_KEY
    ALTER c SET DEFAULT (d)          SET_DEFAULT c, with the names in it
    CONVERT TO CHARACTER SET utf8    CONVERT_TEXTS
    ADD PARTITION (…), COMMENT 'x'   none

Guarantees: a closed list of keywords decides, and any other clause is UNKNOWN. Names are as written.
Not done here: types are not parsed; ``words`` has the keywords of a column's definition outside of parentheses.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import Enum, auto
from itertools import pairwise, takewhile

from millrace.schemas.sql.alter_clauses import (
    KEY_WORDS,
    OPTIONS,
    Words,
    alter_body,
    is_about_partitions,
    parts,
)
from millrace.schemas.sql.statement import Kind, Statement
from millrace.schemas.sql.tokens import SqlMode, Token, tokenize


class Verb(Enum):
    ADD_COLUMN = auto()
    DROP_COLUMN = auto()
    MODIFY_COLUMN = auto()
    RENAME_COLUMN = auto()
    SET_DEFAULT = auto()
    CONVERT_TEXTS = auto()  # of all columns
    CHANGE_KEY = auto()  # the primary key is added or dropped
    ADD_UNIQUE = auto()  # which counts as a primary key where there is none
    RENAME_TABLE = auto()
    EXCHANGE_ROWS = auto()  # with the other table
    MOVE_ROWS_OUT = auto()  # to the other table, which is new
    MOVE_ROWS_IN = auto()  # of the other table, which goes
    IMPORT_ROWS = auto()  # of a file
    IGNORE_ROWS = auto()  # that do not suit: IGNORE removes or changes them
    UNKNOWN = auto()


@dataclass(frozen=True, slots=True)
class Action:
    """``column`` is the column before the statement, ``new_name`` its name after RENAME_COLUMN.

    ``names`` has all names and keywords in lower case that a column's definition has between parentheses or after
    DEFAULT: of an expression, and of others.
    """

    verb: Verb
    column: str = ""
    new_name: str = ""
    words: tuple[str, ...] = ()
    names: frozenset[str] = frozenset()


_MORE_OPTIONS = {
    *("DATA", "INDEX", "CONNECTION", "PASSWORD", "TABLESPACE", "STORAGE", "UNION", "SEQUENCE"),
    *("SECONDARY_LOAD", "SECONDARY_UNLOAD", "IETF_QUOTES", "UPGRADE"),
}
# visibility, order, partitions: no value, type or name changes; rows may go
_HARMLESS = {"ORDER", "PARTITION", "DISCARD", "REMOVE", *OPTIONS, *_MORE_OPTIONS}
_HARMLESS_OF_PARTITIONS = {
    *("ADD", "DROP", "REORGANIZE", "COALESCE", "DISCARD"),
    *("TRUNCATE", "ANALYZE", "CHECK", "OPTIMIZE", "REBUILD", "REPAIR"),
}
_PRIMARY = "PRIMARY"


def actions_of(statement: Statement, sql: str, mode: SqlMode) -> tuple[Action, ...]:
    """The actions of the statement; () if it is of another kind."""
    if statement.kind in (Kind.CREATE_INDEX, Kind.DROP_INDEX):
        return tuple(_of_index(tokenize(sql, mode), statement.kind))
    if statement.kind is not Kind.ALTER_TABLE:
        return ()
    actions: list[Action] = []
    begin = statement.tables[0].start
    if any(token.word == "IGNORE" for token in tokenize(sql, mode) if token.start < begin):
        actions.append(Action(Verb.IGNORE_ROWS))
    for clause in clauses_with_actions(statement, sql, mode):
        actions += clause.actions
    return tuple(actions)


@dataclass(frozen=True, slots=True)
class ActiveClause:
    """One clause of an ALTER TABLE. A clause about partitions, or an order of rows, has all tokens that follow."""

    tokens: tuple[Token, ...]
    actions: tuple[Action, ...]
    takes_rest: bool = False


def clauses_with_actions(statement: Statement, sql: str, mode: SqlMode) -> Iterator[ActiveClause]:
    """The clauses of an ALTER TABLE, between its top-level commas."""
    body = alter_body(statement, sql, mode)
    for part in parts(body):
        reader = Words(part)
        first, second = reader.next_word(), reader.next_word(1)
        actions: list[Action] = []
        if ("WITH", "SYSTEM") in pairwise(reader.words()):  # an option, anywhere among others
            actions.append(Action(Verb.CHANGE_KEY))
        actions += _of_clause(reader, first, second)
        if is_about_partitions(first, second) or first in ("ORDER", "PARTITION"):
            rest = (token for token in body if token.start >= part[0].start)
            yield ActiveClause(tuple(rest), tuple(actions), takes_rest=True)
            return  # commas follow that separate no clauses
        yield ActiveClause(tuple(part), tuple(actions))


def _of_index(tokens: tuple[Token, ...], kind: Kind) -> Iterator[Action]:
    words = [token.word for token in tokens]
    at = words.index("INDEX")
    if kind is Kind.CREATE_INDEX and "UNIQUE" in words[:at]:
        yield Action(Verb.ADD_UNIQUE)
    if kind is Kind.DROP_INDEX:
        at += 2 if words[at + 1 : at + 3] == ["IF", "EXISTS"] else 0
        if tokens[at + 1].name.upper() == _PRIMARY:
            yield Action(Verb.CHANGE_KEY)


def _of_clause(reader: Words, first: str, second: str) -> Iterator[Action]:
    if is_about_partitions(first, second):
        yield from _of_partitions(first)
    elif first == "ADD":
        yield from _added(reader)
    elif first == "DROP":
        yield from _dropped(reader)
    elif first == "RENAME":
        yield from _renamed(reader, second)
    elif first in ("MODIFY", "CHANGE"):
        yield from _changed(reader, first)
    elif first == "ALTER":
        yield from _default(reader, second)
    elif first == "CONVERT":
        verb = {"TO": Verb.CONVERT_TEXTS, "TABLE": Verb.MOVE_ROWS_IN}
        yield Action(verb.get(second, Verb.UNKNOWN))
    elif first == "IMPORT":
        yield Action(Verb.IMPORT_ROWS)
    elif first not in _HARMLESS and not reader.is_empty:
        yield Action(Verb.UNKNOWN)


def _of_partitions(verb: str) -> Iterator[Action]:
    rows = {
        "EXCHANGE": Verb.EXCHANGE_ROWS,
        "CONVERT": Verb.MOVE_ROWS_OUT,
        "IMPORT": Verb.IMPORT_ROWS,
    }
    if verb not in _HARMLESS_OF_PARTITIONS:
        yield Action(rows.get(verb, Verb.UNKNOWN))


# ---- columns and keys ------------------------------------------------------------------------------


def _added(reader: Words) -> Iterator[Action]:
    reader.next()
    is_column = reader.take("COLUMN")
    _skip_condition(reader)
    if not is_column and reader.next_word() in KEY_WORDS:
        yield from _key(reader)
    elif reader.next_word() == "(":
        for part in parts(reader.inside_parentheses()):
            inner = Words(part)
            if inner.next_word() in KEY_WORDS:
                yield from _key(inner)
            else:
                yield from _defined(Verb.ADD_COLUMN, inner)
    else:
        yield from _defined(Verb.ADD_COLUMN, reader)


def _key(reader: Words) -> Iterator[Action]:
    words = reader.words()
    if words[:2] == ["SYSTEM", "VERSIONING"]:  # the end of a row's time becomes a part of the key
        yield Action(Verb.CHANGE_KEY)
    elif words[0] == "CONSTRAINT":
        kind = next((word for word in words[1:] if word in (_PRIMARY, "UNIQUE", "FOREIGN")), "")
        yield from _key_of_kind(kind)
    else:
        yield from _key_of_kind(words[0])


def _key_of_kind(kind: str) -> Iterator[Action]:
    if kind == _PRIMARY:
        yield Action(Verb.CHANGE_KEY)
    elif kind == "UNIQUE":
        yield Action(Verb.ADD_UNIQUE)


def _defined(verb: Verb, reader: Words) -> Iterator[Action]:
    """A column's name and definition, with the key that it may have: ``c INT [UNIQUE [KEY]] [[PRIMARY] KEY]``."""
    name = reader.exact_name()
    words = tuple(takewhile(lambda word: word != "PARTITION", reader.words()))
    yield Action(verb, name, words=words, names=reader.expression_names())
    is_unique = "UNIQUE" in words or words[:1] == ("SERIAL",)
    keys = [before for before, word in zip(("", *words), words, strict=False) if word == "KEY"]
    if any(before != "UNIQUE" for before in keys):
        yield Action(Verb.CHANGE_KEY)
    if is_unique:
        yield Action(Verb.ADD_UNIQUE)


def _dropped(reader: Words) -> Iterator[Action]:
    reader.next()
    if reader.take("SYSTEM") or reader.take(_PRIMARY):
        yield Action(Verb.CHANGE_KEY)
        return
    if reader.take("FOREIGN", "CHECK", "PERIOD"):
        return
    if reader.take("INDEX", "KEY", "CONSTRAINT"):
        _skip_condition(reader)
        if reader.exact_name().upper() == _PRIMARY:
            yield Action(Verb.CHANGE_KEY)
        return
    reader.take("COLUMN")
    _skip_condition(reader)
    yield Action(Verb.DROP_COLUMN, reader.exact_name())


def _renamed(reader: Words, second: str) -> Iterator[Action]:
    if second in ("INDEX", "KEY"):
        return
    if second != "COLUMN":
        yield Action(Verb.RENAME_TABLE)
        return
    reader.next(), reader.next()
    _skip_condition(reader)
    old = reader.exact_name()
    reader.take("TO")
    yield Action(Verb.RENAME_COLUMN, old, reader.exact_name())


def _changed(reader: Words, first: str) -> Iterator[Action]:
    reader.next()
    reader.take("COLUMN")
    _skip_condition(reader)
    if first == "MODIFY":
        yield from _defined(Verb.MODIFY_COLUMN, reader)
        return
    old = reader.exact_name()
    for action in _defined(Verb.MODIFY_COLUMN, reader):
        if action.verb is not Verb.MODIFY_COLUMN:
            yield action
            continue
        if action.column != old:
            yield Action(Verb.RENAME_COLUMN, old, action.column)
        yield replace(action, column=old)


def _default(reader: Words, second: str) -> Iterator[Action]:
    """``ALTER [COLUMN] c SET DEFAULT …``; indexes and checks are altered, too."""
    if second in ("INDEX", "KEY", "CHECK", "CONSTRAINT"):
        return
    reader.next()
    reader.take("COLUMN")
    _skip_condition(reader)
    name = reader.exact_name()
    yield Action(Verb.SET_DEFAULT, name, names=reader.expression_names())


def created_columns(statement: Statement, sql: str, mode: SqlMode) -> tuple[Action, ...]:
    """The columns that a CREATE TABLE defines; () if it takes them from another table."""
    end = statement.tables[0].end
    reader = Words([token for token in tokenize(sql, mode) if token.start >= end])
    if reader.next_word() != "(":
        return ()
    definitions = (Words(part) for part in parts(reader.inside_parentheses()))
    columns = (
        _defined(Verb.ADD_COLUMN, definition)
        for definition in definitions
        if definition.next_word() not in KEY_WORDS
    )
    return tuple(next(actions) for actions in columns)


def _skip_condition(reader: Words) -> None:
    """MariaDB's IF EXISTS and IF NOT EXISTS. A column whose name is ``if`` is in quotes."""
    if reader.take("IF"):
        reader.take("NOT")
        reader.take("EXISTS")
