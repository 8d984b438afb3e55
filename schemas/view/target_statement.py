"""A logged statement as a target set executes it under a view: its names and clauses, by their positions. Pure.

    rule of orders: {to: house.sales, columns: {drop: [note], rename: {mail: email}}}

    ALTER TABLE orders ADD total INT, MODIFY mail TEXT, ADD KEY (note)
    ALTER TABLE `house`.`sales` ADD total INT, MODIFY `email` TEXT

    sql       the statement for the target; "" if nothing is left to execute there, or if its effect is not known
    doubt     why an operator must decide; "" if it can be executed, or if nothing is left

``sql`` with a ``doubt``: the text is right, but the delivered rows may no longer be those of the view. docs/views.md
has the table of clauses.

Guarantees: a clause is executed only if each name in it is that of the target's table or column. What is not understood
is a doubt. The text has no comment and no clause about a column that the view leaves out or masks, so it may be shown
wherever the target's structure may. It is classified again, and must name the tables that the view names.
Not done here: whether the target has these tables, and whether another task writes them (``consumer.write.ddl``).
"""

import unicodedata
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from millrace.schemas.record.control import DdlRecord
from millrace.schemas.sql.alter_actions import (
    Action,
    ActiveClause,
    Verb,
    clauses_with_actions,
)
from millrace.schemas.sql.alter_clauses import KEY_WORDS, Words, is_mark, parts
from millrace.schemas.sql.quoting import quoted, table_name
from millrace.schemas.sql.statement import Kind, Statement, TableName, classify
from millrace.schemas.sql.tokens import SqlMode, Token, tokenize
from millrace.schemas.table.structure import TableSchema
from millrace.schemas.view.ddl import effect_of
from millrace.schemas.view.view import SAME_NAME, Match, TableRule, View, places_of, star_count

TableKey = tuple[str, str]
Structures = Mapping[TableKey, Collection[TableSchema]]

_ALTERING = (Kind.ALTER_TABLE, Kind.CREATE_INDEX, Kind.DROP_INDEX)
# partitions of a table that an operator created may have other rows than those of the source
_REMOVING_PARTITIONS = {"DROP", "TRUNCATE", "EXCHANGE", "CONVERT", "DISCARD", "IMPORT"}
_REMOVING = [(verb, "PARTITION") for verb in ("DROP", "TRUNCATE", "EXCHANGE", "CONVERT")]
_SEQUENCE_WORDS = {"NEXTVAL", "LASTVAL", "SETVAL"}
_NAMING_OPTIONS = {"UNION", "CONNECTION", "TABNAME", "DBNAME", "SRCDEF", "OPTION_LIST"}


@dataclass(frozen=True, slots=True)
class TargetStatement:
    """See the module. ``statement``: the classification of ``sql``; None without a text."""

    sql: str = ""
    statement: Statement | None = None
    doubt: str = ""

    @property
    def removes_rows(self) -> bool:
        """Whether rows of a table or a partition go."""
        if self.statement is None:
            return False
        return _removes_rows(self.statement, self.sql)


NOTHING = TargetStatement()


class _DoubtError(Exception):
    """The effect on the target is not known."""


def target_statement(
    record: DdlRecord, view: View, structures: Structures, *, folds: bool = False
) -> TargetStatement:
    """The statement of a record that is understood and is no gap.

    ``structures``: those that the rows of a table have had, by the source's names. ``folds`` as in ``View.match``.
    """
    logged = record.statement
    statement = classify(logged.sql, logged.default_database, logged.sql_mode)
    tables = _Tables(view, structures, folds)
    try:
        if statement.databases:
            return _of_database(statement, tables)
        text = _Translation(statement, record, tables).text()
        if not text:
            return TargetStatement(doubt=_values_in_doubt(record, statement, tables))
        found = _checked(text, statement, logged.sql_mode, tables)
    except _DoubtError as doubt:
        return TargetStatement(doubt=str(doubt))
    doubts = [_values_in_doubt(record, statement, tables)]
    if found.removes_rows:
        doubts += (tables.possible_twin(name) for name in statement.tables)
    return replace(found, doubt="; ".join(filter(None, doubts)))


def _removes_rows(statement: Statement, sql: str) -> bool:
    words = [token.word for token in tokenize(sql)]
    return (
        statement.kind in (Kind.DROP_TABLE, Kind.TRUNCATE_TABLE)
        or (statement.kind is Kind.CREATE_TABLE and words[1:2] == ["OR"])
        or (
            statement.kind is Kind.ALTER_TABLE
            and any(pair in pairwise(words) for pair in _REMOVING)
        )
    )


def _of_database(statement: Statement, tables: "_Tables") -> TargetStatement:
    """A database is needed on the target only if the view has a table of this name there."""
    (database,) = statement.databases
    view, folds = tables.view, tables.folds
    is_kept = statement.kind in (Kind.CREATE_DATABASE, Kind.ALTER_DATABASE)
    if is_kept and view.moves_all_of(database, folds=folds):
        return NOTHING
    raise _DoubtError(f"the view changes names or tables of the database {database}")


def _checked(sql: str, source: Statement, mode: SqlMode, tables: "_Tables") -> TargetStatement:
    """The text with its classification, which must be that of the source with the view's names."""
    found = classify(sql, "", mode)
    wanted = [tables.target(name) for name in source.tables if tables.match(name) is not None]
    named = [(name.database, name.table) for name in found.tables]
    if found.kind is not source.kind or named != wanted:
        raise _DoubtError("the statement is not understood with the names of the view")
    return TargetStatement(sql, found)


def _values_in_doubt(record: DdlRecord, statement: Statement, tables: "_Tables") -> str:
    """Why delivered rows may not be those of the view any more; "" if they are, or if the view has all as it is."""
    if statement.kind not in _ALTERING:
        return ""
    name = statement.tables[0]
    match = tables.match(name)
    if match is None or not _changes_rows(match.rule):
        return ""
    own = View((replace(match.rule, source="*.*"),))  # which matches the name in any case
    reasons: list[str] = []
    for structure in tables.structures_of(name) or (None,):
        known = {} if structure is None else {(name.database, name.table): structure}
        reasons += map(str, effect_of(record, own, known).obstacles)
    return "; ".join(dict.fromkeys(reasons))


def _changes_rows(rule: TableRule) -> bool:
    """Whether the rows of its tables are others than on the source, but for the table's name."""
    return replace(rule, target=SAME_NAME, merge=False) != TableRule(rule.source)


def _changes_columns(rule: TableRule) -> bool:
    return bool(rule.keep or rule.drop or rule.rename or rule.masks)


class _Tables:
    """Tables of statements, and what the view makes of them."""

    def __init__(self, view: View, structures: Structures, folds: bool) -> None:
        self.view, self.structures, self.folds = view, structures, folds

    def match(self, name: TableName) -> Match | None:
        """The rule of this table; None if it is not in the view."""
        return self.view.match(name.database, name.table, folds=self.folds)

    def target(self, name: TableName) -> TableKey:
        """The name that the view gives to this table alone."""
        match = self.match(name)
        if match is None:
            raise _DoubtError(f"{_shown(name)} is not in the view")
        self._check_alone(name, match)
        return match.name

    def possible_twin(self, name: TableName) -> str:
        """Another table of the source that would have the same name in the view; "" if there can be none."""
        match = self.match(name)
        if match is None or self._compared(match.name) == self._compared(
            (name.database, name.table)
        ):
            return ""
        other = self.view.match(*match.name, folds=self.folds)
        if other is None or self._compared(other.name) != self._compared(match.name):
            return ""
        return f"the rows of {'.'.join(match.name)} go; if the source has a table of this name, too, they are its rows"

    def structures_of(self, name: TableName) -> list[TableSchema]:
        """All that it may have: a source may ignore the case of names, and then logs a statement as it was typed."""
        own = (name.database.lower(), name.table.lower())
        return [
            structure
            for (database, table), structures in self.structures.items()
            if (database.lower(), table.lower()) == own
            for structure in structures
        ]

    def written(self, name: TableName) -> str:
        """The same as SQL."""
        return table_name(*self.target(name)).decode()

    def _check_alone(self, name: TableName, match: Match) -> None:
        if (
            match.rule.merge
            or not _is_distinct(match.rule)
            or self.view.may_name(*match.name, folds=self.folds, but=match.rule)
        ):
            raise _DoubtError(f"the view may give the name of {_shown(name)} to other tables, too")
        own = self._compared((name.database, name.table))
        for other in self.structures:
            found = self.view.match(*other, folds=self.folds)
            if (
                found is not None
                and self._compared(found.name) == self._compared(match.name)
                and self._compared(other) != own
            ):
                raise _DoubtError(f"the view names {_shown(name)} as it names {'.'.join(other)}")

    def _compared(self, key: TableKey) -> TableKey:
        return (key[0].lower(), key[1].lower()) if self.folds else key


def _shown(name: TableName) -> str:
    return f"{name.database}.{name.table}"


def _is_distinct(rule: TableRule) -> bool:
    """Whether each table that the pattern matches gets another name."""
    places = set(places_of(rule.target))
    of_database, _, of_table = rule.source.partition(".")
    first = star_count(of_database)
    numbers = {
        "database": range(1, first + 1),
        "table": range(first + 1, star_count(rule.source) + 1),
    }
    for place, pattern in (("database", of_database), ("table", of_table)):
        if place in places or not {"*", "?"} & set(pattern):
            continue
        if "?" in pattern or not {str(number) for number in numbers[place]} <= places:
            return False
    return True


class _Translation:
    """The text of one statement about tables."""

    def __init__(self, statement: Statement, record: DdlRecord, tables: _Tables) -> None:
        self._statement, self._tables = statement, tables
        self._sql, self._mode = record.statement.sql, record.statement.sql_mode
        self._is_conditional = record.statement.session.get("sql_if_exists", "0") != "0"
        self._tokens = [
            token for token in tokenize(self._sql, self._mode) if not is_mark(token, ";")
        ]

    def text(self) -> str:
        """ "" if nothing is left. Raises ``_DoubtError``."""
        kind, statement = self._statement.kind, self._statement
        if kind is Kind.DROP_TABLE or (kind is Kind.SEQUENCE and statement.verb.startswith("DROP")):
            return self._of_drop()
        if kind is Kind.RENAME_TABLE:
            return self._of_rename()
        if kind in (Kind.TRUNCATE_TABLE, Kind.SEQUENCE):
            return self._as_text()
        if kind is Kind.CREATE_TABLE:
            return self._of_create()
        match = self._tables.match(statement.tables[0])
        if match is None or any(self._tables.match(name) is None for name in statement.tables):
            raise _DoubtError(self._crossing())
        self._check_moved()
        columns = _Columns(match.rule, self._tables.structures_of(statement.tables[0]))
        if kind is Kind.ALTER_TABLE:
            self._check_conditions(columns)
        if not _changes_rows(match.rule):
            return self._as_text()
        if kind is Kind.ALTER_TABLE:
            return self._of_alter(columns)
        return self._of_index(columns)

    # ---- whole statements ------------------------------------------------------------------------

    def _as_text(self) -> str:
        return self._written(self._tokens, self._names())

    def _of_drop(self) -> str:
        """Without the tables that are not in the view."""
        names = self._statement.tables
        kept = [self._tables.written(name) for name in names if self._tables.match(name)]
        if not kept:
            return ""
        head = [token for token in self._tokens if token.start < names[0].start]
        tail = [token for token in self._tokens if token.start >= names[-1].end]
        texts = (self._written(head, {}), ", ".join(kept), self._written(tail, {}))
        return " ".join(filter(None, texts))

    def _of_rename(self) -> str:
        names = self._statement.tables
        if any(self._tables.match(name) is None for name in names):
            raise _DoubtError(self._crossing())
        self._check_moved()
        return self._as_text()

    def _of_create(self) -> str:
        name, *_ = self._statement.tables
        match = self._tables.match(name)
        if match is None:
            raise _DoubtError(f"{_shown(name)} is not in the view")
        likes = [one for one in self._statement.references if self._is_after_like(one)]
        for like in likes:
            other = self._tables.match(like)
            if other is None or _shape(other) != _shape(match):
                raise _DoubtError(
                    f"{_shown(name)} is made like {_shown(like)}, which the view has otherwise"
                )
        if not likes and _changes_rows(match.rule):
            raise _DoubtError(f"the rule of {_shown(name)} changes its rows or columns")
        return self._as_text()

    def _is_after_like(self, name: TableName) -> bool:
        before = [token.word for token in self._tokens if token.end <= name.start]
        return bool(before) and before[-1] == "LIKE"

    def _check_moved(self) -> None:
        """Tables that exchange names or rows must have the same content in the view, under different names."""
        names = self._statement.tables
        first = self._tables.match(names[0])
        for one, name in enumerate(names):
            match = self._tables.match(name)
            assert match is not None  # checked before
            assert first is not None
            if _content(match) != _content(first):
                raise _DoubtError(f"the view has {_shown(name)} otherwise than {_shown(names[0])}")
            for other in names[:one]:
                is_same = (other.database, other.table) == (name.database, name.table)
                if not is_same and self._tables.target(other) == self._tables.target(name):
                    raise _DoubtError(
                        f"{_shown(other)} and {_shown(name)} have one name in the view"
                    )

    def _check_conditions(self, columns: "_Columns") -> None:
        """A column that the source does not have, or has already, may be one of the target alone."""
        for clause in clauses_with_actions(self._statement, self._sql, self._mode):
            is_conditional = self._is_conditional or "IF" in Words(list(clause.tokens)).words()
            for action in clause.actions if is_conditional else ():
                if action.verb is Verb.ADD_COLUMN:
                    raise _DoubtError(
                        f"it adds {action.column} only if the source does not have it"
                    )
                if action.column and not columns.knows(action.column):
                    raise _DoubtError(
                        f"the source may not have {action.column}, and the target may"
                    )

    def _crossing(self) -> str:
        """Why tables that are only partly in the view need an operator."""
        inside, outside = (
            ", ".join(
                dict.fromkeys(
                    _shown(name)
                    for name in self._statement.tables
                    if (self._tables.match(name) is None) is is_out
                )
            )
            for is_out in (False, True)
        )
        return f"it moves a table or rows between {inside} of the view and {outside} outside of it"

    # ---- clauses -----------------------------------------------------------------------------------

    def _of_alter(self, columns: "_Columns") -> str:
        names = self._names()
        first = next(clauses_with_actions(self._statement, self._sql, self._mode), None)
        begin = first.tokens[0].start if first is not None and first.tokens else len(self._sql)
        head = [token for token in self._tokens if token.start < begin]
        if any(token.word == "IGNORE" for token in head):
            raise _DoubtError("IGNORE may remove or change rows")
        kept = []
        for clause in clauses_with_actions(self._statement, self._sql, self._mode):
            edits = _clause(clause, columns)
            if edits is not None and clause.tokens:
                kept.append(self._written(clause.tokens, names | edits))
        if not kept:
            return ""
        return f"{self._written(head, names)} {', '.join(kept)}"

    def _of_index(self, columns: "_Columns") -> str:
        edits: _Edits | None = {}
        if self._statement.kind is Kind.CREATE_INDEX:
            end = self._statement.tables[0].end
            after = [token for token in self._tokens if token.start >= end]
            edits = _key_columns(after, columns)
        return "" if edits is None else self._written(self._tokens, self._names() | edits)

    # ---- text ----------------------------------------------------------------------------------------

    def _names(self) -> "_Edits":
        """The view's names at the positions of all tables; a table that is only read may be a doubt there."""
        edits: _Edits = {}
        for name in self._statement.tables:
            edits[name.start] = _Edit(name.end, self._tables.written(name))
        for name in self._statement.references:
            match, doubt = self._tables.match(name), ""
            if match is None:
                doubt = f"it refers to {_shown(name)}, which is not in the view"
            elif _changes_columns(match.rule) and not self._is_after_like(name):
                doubt = f"it refers to {_shown(name)}, whose columns the view changes"
            text = "" if doubt else self._tables.written(name)
            edits[name.start] = _Edit(name.end, text, doubt)
        return edits

    def _written(self, tokens: Sequence[Token], edits: "_Edits") -> str:
        """The text of these tokens, without comments."""
        pieces: list[str] = []
        end, covered = -1, -1
        for at, token in enumerate(tokens):
            if token.start < covered:
                continue
            edit = edits.get(token.start)
            if edit is not None and edit.doubt:
                raise _DoubtError(edit.doubt)
            if edit is None:
                self._check_name(tokens, at)
            if pieces and self._sql[end : token.start] and (edit is None or edit.text):
                pieces.append(" ")
            pieces.append(self._sql[token.start : token.end] if edit is None else edit.text)
            covered = end = token.end if edit is None else edit.end
        return "".join(pieces)

    def _check_name(self, tokens: Sequence[Token], at: int) -> None:
        """A name that is not at a known position may be of another table, or of one that the view names otherwise."""
        token = tokens[at]
        before = tokens[at - 1] if at else None
        after = tokens[at + 1] if at + 1 < len(tokens) else None
        if (
            is_mark(token, ".")
            and before is not None
            and before.name
            and after is not None
            and after.name
        ):
            raise _DoubtError(f"{before.name}.{after.name} may be a name of another table")
        following = after.name.upper() if after is not None else ""
        is_text = after is not None and after.kind == "text"
        if token.word in _SEQUENCE_WORDS or (
            token.word in ("NEXT", "PREVIOUS") and following == "VALUE"
        ):
            raise _DoubtError("it uses a sequence")
        if token.word in _NAMING_OPTIONS and (following in ("=", "(") or is_text):
            raise _DoubtError(f"its option {token.word} may name other tables")


def _content(match: Match) -> object:
    """Equal for tables whose rows the view has alike, but for the table's name."""
    rule = match.rule
    return rule.where, rule.keep, rule.drop, rule.rename, match.added, rule.masks


def _shape(match: Match) -> object:
    """Equal for tables whose columns the view has alike."""
    rule = match.rule
    added = tuple((name, isinstance(value, str)) for name, value in rule.add)
    return rule.keep, rule.drop, rule.rename, rule.masks, added


# ---- columns -------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Edit:
    """The text for the characters up to ``end``; or why it is not known."""

    end: int
    text: str
    doubt: str = ""


_Edits = dict[int, _Edit]  # by the position of the first character


class _Columns:
    """The uses that a rule makes of the columns of its table, by their folded names."""

    def __init__(self, rule: TableRule, structures: Collection[TableSchema]) -> None:
        old_names = {_folded(new): _folded(old) for old, new in rule.rename}
        self.renamed = {_folded(old): new for old, new in rule.rename}
        self.masked = {old_names.get(_folded(name), _folded(name)) for name, _ in rule.masks}
        added = {_folded(name) for name, _ in rule.add}
        self.only_of_view = ({*old_names} | added) - set(old_names.values())
        self.adds_texts = any(isinstance(value, str) for _, value in rule.add)
        self._kept = {_folded(name) for name in rule.keep}
        self._dropped = {_folded(name) for name in rule.drop}
        self._known = {
            _folded(name)
            for structure in structures
            for name in (*(column.name for column in structure.columns), *structure.omitted)
        }

    def knows(self, name: str) -> bool:
        """Whether rows of the table had this column."""
        return _folded(name) in self._known

    def hides(self, name: str) -> bool:
        """Whether the view leaves out a column of this name."""
        name = _folded(name)
        return name in self._dropped or (bool(self._kept) and name not in self._kept)

    def check_plain(self, tokens: Sequence[Token]) -> None:
        """Doubt if a name in an expression or a clause may be a column that the target does not have like this."""
        self._check_names(_names_of(tokens))
        if self._kept:
            self._check_kept(_inner_names(tokens))

    def check_expression(self, tokens: list[Token]) -> None:
        """The same for the expressions in a column's definition."""
        names = Words(tokens).expression_names()
        self._check_names(names)
        if self._kept:
            self._check_kept(names)

    def _check_names(self, names: Collection[str]) -> None:
        special = self._dropped | self.masked | self.only_of_view | set(self.renamed)
        named = sorted(special & set(map(_folded, names)))
        if named:
            raise _DoubtError(f"a clause names {', '.join(named)}, which the view changes")

    def _check_kept(self, names: Collection[str]) -> None:
        others = sorted(set(map(_folded, names)) - self._kept - _OPERATORS)
        if others:
            raise _DoubtError(f"a clause names {', '.join(others)}, which the view may leave out")

    def check_own(self, name: str) -> None:
        """Doubt if the target's column of this name is masked, or another one."""
        if _folded(name) in self.masked:
            raise _DoubtError(f"the view masks {name}")
        if _folded(name) in self.only_of_view:
            raise _DoubtError(f"the view gives the name {name} to another column")

    def edit(self, token: Token) -> _Edits:
        """The name in the view of the column that this token names."""
        new = self.renamed.get(_folded(token.name))
        return {} if new is None else {token.start: _Edit(token.end, quoted(new).decode())}


def _folded(name: str) -> str:
    """Equal for names that the servers take for one: they ignore case and accents of columns."""
    decomposed = unicodedata.normalize("NFD", name)
    return "".join(one for one in decomposed if not unicodedata.combining(one)).lower()


def _names_of(tokens: Sequence[Token]) -> list[str]:
    return [token.name for token in tokens if token.kind in ("word", "quoted")]


_OPERATORS = {
    *(
        "and",
        "or",
        "not",
        "xor",
        "is",
        "null",
        "in",
        "like",
        "between",
        "div",
        "mod",
        "true",
        "false",
    ),
    *("case", "when", "then", "else", "end", "current_timestamp", "asc", "desc"),
}


def _inner_names(tokens: Sequence[Token]) -> list[str]:
    """The names inside parentheses that are not those of functions."""
    found, depth = [], 0
    for at, token in enumerate(tokens):
        if token.kind == "mark":
            depth += {"(": 1, ")": -1}.get(token.name, 0)
        is_called = at + 1 < len(tokens) and is_mark(tokens[at + 1], "(")
        if depth and not is_called and token.kind in ("word", "quoted"):
            found.append(token.name)
    return found


def _clause(clause: ActiveClause, columns: _Columns) -> _Edits | None:
    """The edits of one clause; None if it is left out."""
    tokens, actions = list(clause.tokens), clause.actions
    words = Words(tokens)
    first, second = words.next_word(), words.next_word(1)
    if any(action.verb is Verb.UNKNOWN for action in actions):
        raise _DoubtError("a clause is not understood")
    if "SYSTEM" in words.words() or "PERIOD" in words.words():
        raise _DoubtError("a clause is about versions of rows")
    if first == "ORDER":
        return None  # of the rows in the file
    if clause.takes_rest or first in ("REMOVE", "PARTITION"):
        if first in _REMOVING_PARTITIONS:
            raise _DoubtError("the partitions of the target may have other rows")
        columns.check_plain(tokens)
        return {}
    if first == "ADD":
        return _added(tokens, columns)
    if first in ("DROP", "RENAME", "ALTER") and second in _NOT_COLUMNS:
        return {}
    if first == "RENAME" and second != "COLUMN":
        return {}  # the table, whose names are edited
    if first in ("DROP", "RENAME", "ALTER", "MODIFY", "CHANGE"):
        return _changed(tokens, actions, columns)
    if first == "CONVERT":
        if second != "TO" or columns.masked or columns.adds_texts:
            raise _DoubtError(
                "the view has columns that the source does not have, and they would change"
            )
        return {}
    if first in ("IMPORT", "DISCARD"):
        raise _DoubtError("rows come from a file")
    return {}  # an option of the table


_NOT_COLUMNS = ("INDEX", "KEY", "PRIMARY", "FOREIGN", "CONSTRAINT", "CHECK")


def _after_condition(tokens: list[Token], at: int) -> int:
    """After ``COLUMN``, ``IF EXISTS`` or ``IF NOT EXISTS``, which may come at this place."""
    words = [token.word for token in tokens]
    at += words[at : at + 1] == ["COLUMN"]
    for condition in (["IF", "NOT", "EXISTS"], ["IF", "EXISTS"]):
        if words[at : at + len(condition)] == condition:
            return at + len(condition)
    return at


def _added(tokens: list[Token], columns: _Columns) -> _Edits | None:
    at = _after_condition(tokens, 1)
    is_column = at > 1 and tokens[1].word == "COLUMN"
    if at >= len(tokens):
        raise _DoubtError("a clause is not understood")
    if not is_mark(tokens[at], "("):
        is_key = not is_column and tokens[at].word in KEY_WORDS
        return _key(tokens[at:], columns) if is_key else _defined(tokens[at:], columns)
    inside = Words(tokens[at:]).inside_parentheses()
    each = [part for part in parts(inside) if part]
    found = [
        _key(part, columns) if part[0].word in KEY_WORDS else _defined(part, columns)
        for part in each
    ]
    if all(edits is None for edits in found):
        return None
    if any(edits is None for edits in found):
        raise _DoubtError("a list of columns has some that the view leaves out")
    merged: _Edits = {}
    for edits in found:
        merged |= edits or {}
    return merged


def _defined(tokens: list[Token], columns: _Columns) -> _Edits | None:
    """A column that is added: ``name definition``."""
    name = tokens[0].name
    words = Words(tokens[1:])
    attributes = words.words()
    if columns.hides(name):
        if "PARTITION" in attributes or _makes_key(attributes):
            raise _DoubtError(f"the view leaves out {name}, and more than that changes")
        return None
    columns.check_own(name)
    if _folded(name) in columns.renamed:
        raise _DoubtError(f"the view gives {name} another name")
    return _definition(tokens[1:], columns)


def _makes_key(attributes: Sequence[str]) -> bool:
    """Whether a column's definition makes it the primary key."""
    pairs = zip(("", *attributes), attributes, strict=False)
    return any(word == "KEY" and before != "UNIQUE" for before, word in pairs)


def _definition(tokens: list[Token], columns: _Columns) -> _Edits:
    """The definition of a column that the target has: no name in it is special, but that after AFTER."""
    columns.check_expression(tokens)
    if "PARTITION" in Words(tokens).words():
        columns.check_plain(tokens)
    if len(tokens) >= 2 and tokens[-2].word == "AFTER" and tokens[-1].kind in ("word", "quoted"):
        place = tokens[-1].name
        if columns.hides(place) or _folded(place) in columns.only_of_view:
            return {tokens[-2].start: _Edit(tokens[-1].end, "")}
        return columns.edit(tokens[-1])
    return {}


def _changed(tokens: list[Token], actions: Sequence[Action], columns: _Columns) -> _Edits | None:
    """DROP, RENAME, ALTER, MODIFY or CHANGE of a column."""
    first = tokens[0].word
    at = _after_condition(tokens, 1)
    if at >= len(tokens) or not actions:
        raise _DoubtError("a clause is not understood")
    column = tokens[at]
    new = None
    if first == "CHANGE":
        new = tokens[at + 1] if at + 1 < len(tokens) else None
    elif first == "RENAME":
        new = tokens[at + 2] if at + 2 < len(tokens) else None
    if first in ("CHANGE", "RENAME") and new is None:
        raise _DoubtError("a clause is not understood")
    is_renamed = new is not None and _folded(new.name) != _folded(column.name)
    if columns.hides(column.name):
        if new is not None and not columns.hides(new.name):
            raise _DoubtError(f"{column.name} gets the name {new.name}, which the view has")
        if any(action.verb is Verb.CHANGE_KEY for action in actions):
            raise _DoubtError(f"the view leaves out {column.name}, and more than that changes")
        return None
    if first != "DROP":
        columns.check_own(column.name)
    elif _folded(column.name) in columns.only_of_view:
        raise _DoubtError(f"the view gives the name {column.name} to another column")
    edits = columns.edit(column)
    if is_renamed:
        assert new is not None
        columns.check_own(new.name)
        if {_folded(column.name), _folded(new.name)} & columns.renamed.keys():
            raise _DoubtError(f"the view gives {column.name} or {new.name} another name")
        if columns.hides(new.name):
            raise _DoubtError(f"{column.name} gets the name {new.name}, which the view leaves out")
    elif new is not None:
        edits |= columns.edit(new)
    if first in ("MODIFY", "CHANGE"):
        edits |= _definition(tokens[at + (1 if new is None else 2) :], columns)
    if first == "ALTER":
        columns.check_expression(tokens[at + 1 :])
    return edits


def _key(tokens: list[Token], columns: _Columns) -> _Edits | None:
    """A key or a constraint that is added."""
    words = Words(tokens).words()
    if "CHECK" in words or "PERIOD" in words or "PARTITION" in words:
        columns.check_plain(tokens)
        return {}
    edits = _key_columns(tokens, columns)
    if edits is None and "PRIMARY" in words:
        raise _DoubtError("the primary key has only columns that the view leaves out")
    return edits


def _key_columns(tokens: list[Token], columns: _Columns) -> _Edits | None:
    """The columns of a key, in the first parentheses; None if the view has none of them."""
    opening = next((at for at, token in enumerate(tokens) if is_mark(token, "(")), None)
    if opening is None:
        raise _DoubtError("a key without columns is not understood")
    edits: _Edits = {}
    hidden = shown = 0
    for part in parts(Words(tokens[opening:]).inside_parentheses()):
        if not part or part[0].kind not in ("word", "quoted") or _is_call(part):
            columns.check_plain([*tokens[opening : opening + 1], *part])
            shown += 1
        elif columns.hides(part[0].name):
            hidden += 1
        else:
            columns.check_own(part[0].name)
            edits |= columns.edit(part[0])
            shown += 1
    if hidden and shown:
        raise _DoubtError("a key has some columns that the view leaves out")
    return None if hidden else edits


def _is_call(part: list[Token]) -> bool:
    """``f(x)``: a prefix of a column has a number in its parentheses."""
    return len(part) > 2 and is_mark(part[1], "(") and part[2].kind != "number"
