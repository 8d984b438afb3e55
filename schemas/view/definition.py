r"""The definition of a table under a view, from what SHOW CREATE TABLE prints on the source. Pure.

    the table       gets the view's name
    a column        is dropped, gets its new name or the type of its masked values; those that the view adds come last
    everything else that names a column which the view drops, renames or masks:

      keys              follow renamed columns. Left out with a dropped column; a unique key also with a mask that
                        could make two rows equal; a full-text or spatial key also with a masked column
      foreign keys      follow renamed columns and the view's name of the parent. Left out if the view does not have the
                        parent, or if it drops or masks one of the columns
      generated columns become plain ones: their values are in the records
      defaults, CHECKs, functional keys, partitions     are left out

``left_out`` names what the new table does not have. The server names the constraints, so that no name is there twice. A
masked column is without its default, and without its comment, which could show values.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from millrace.schemas.sql.quoting import quoted, table_name
from millrace.schemas.table.structure import TableSchema, TypeCode
from millrace.schemas.view.table_view import TableView, ViewColumn, mask_problem
from millrace.schemas.view.view import MaskKind

_TOKEN = re.compile(r"`(?:[^`]|``)*`|'(?:[^'\\]|\\.|'')*'|[(),]|\s+|[^`'(),\s]+", re.DOTALL)
_PARTITIONS = re.compile(r"PARTITION")
# where a column's type ends
_AFTER_TYPE = frozenset(
    (
        *("NOT", "NULL", "DEFAULT", "AUTO_INCREMENT", "COMMENT", "GENERATED", "AS", "ON", "CHECK"),
        *("INVISIBLE", "VISIBLE", "COLUMN_FORMAT", "STORAGE", "UNIQUE", "PRIMARY", "KEY"),
        *("WITHOUT", "WITH", "REFERENCES", "SRID"),
    )
)
_KEYS = frozenset(("PRIMARY", "UNIQUE", "KEY", "FULLTEXT", "SPATIAL", "VECTOR", "INDEX"))

Tokens = Sequence[str]


@dataclass(frozen=True, slots=True)
class Parent:
    """The name of another table in the view, and its unmasked columns: new names by the old ones in lower case."""

    name: tuple[str, str]
    columns: Mapping[str, str]

    @classmethod
    def of(cls, view: TableView, schema: TableSchema) -> "Parent":
        """The table with this structure."""
        columns = {
            schema.columns[column.source].name.lower(): column.name
            for column in view.columns
            if column.source >= 0 and column.mask is None
        }
        return cls(view.name, columns)


FindParent = Callable[[str, str], Parent | None]


@dataclass(frozen=True, slots=True)
class Definition:
    """``sql`` creates the table."""

    sql: str
    left_out: tuple[str, ...] = ()


def viewed_definition(
    text: str, view: TableView, schema: TableSchema, find_parent: FindParent = lambda *_: None
) -> Definition:
    """The definition of the source's table ``text`` under its view.

    ``find_parent``: a table that a foreign key refers to; None if the view does not have it.
    """
    return _Writer(view, schema, find_parent).written(text)


def _tokens(text: str) -> list[str]:
    return _TOKEN.findall(text)


def _name(token: str) -> str:
    return token[1:-1].replace("``", "`")


def _is_name(token: str) -> bool:
    return token.startswith("`")


def _quoted(name: str) -> str:
    return quoted(name).decode()


def _parts(text: str) -> tuple[list[list[str]], list[str]]:
    """The tokens of each line between the brackets, and those after them."""
    tokens = _tokens(text)
    begin = tokens.index("(")
    lines: list[list[str]] = [[]]
    depth = 0
    for place, token in enumerate(tokens[begin:], begin):
        depth += (token == "(") - (token == ")")
        if depth == 0:
            return [_stripped(line) for line in lines], tokens[place + 1 :]
        if depth == 1 and token == ",":
            lines.append([])
        elif not (depth == 1 and token == "(" and place == begin):
            lines[-1].append(token)
    raise ValueError("the definition of a table has no end")


def _stripped(line: list[str]) -> list[str]:
    found = list(line)
    while found and found[0].isspace():
        del found[0]
    while found and found[-1].isspace():
        del found[-1]
    return found


def _group_end(tokens: Tokens, begin: int) -> int:
    """The place after the bracket that closes the one at ``begin``."""
    depth = 0
    for place in range(begin, len(tokens)):
        depth += (tokens[place] == "(") - (tokens[place] == ")")
        if depth == 0:
            return place + 1
    raise ValueError("a bracket has no end")


def _next_group(tokens: Tokens, begin: int = 0) -> tuple[int, int]:
    """Where the next group in brackets begins and ends."""
    start = next(place for place in range(begin, len(tokens)) if tokens[place] == "(")
    return start, _group_end(tokens, start)


def _top_words(tokens: Tokens) -> Iterator[tuple[int, str]]:
    """The words outside brackets, in upper case, with their places."""
    depth = 0
    for place, token in enumerate(tokens):
        depth += (token == "(") - (token == ")")
        if depth == 0 and token[0] not in "`'() \n\t":
            yield place, token.upper()


@dataclass
class _Writer:
    view: TableView
    schema: TableSchema
    find_parent: FindParent
    left_out: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        by_place = {column.source: column for column in self.view.columns if column.source >= 0}
        # by the old name in lower case; None: the view does not have it
        self.columns: dict[str, ViewColumn | None] = {
            column.name.lower(): by_place.get(place)
            for place, column in enumerate(self.schema.columns)
        }
        self.touched = {
            name for name, column in self.columns.items() if self._is_touched(name, column)
        }

    def _is_touched(self, name: str, column: ViewColumn | None) -> bool:
        return column is None or column.mask is not None or column.name.lower() != name

    def written(self, text: str) -> Definition:
        lines, tail = _parts(text)
        columns = [line for line in lines if _is_name(line[0])]
        keys = [key for line in lines if not _is_name(line[0]) if (key := self._rest(line))]
        first = {self._first_column(key) for key in keys}
        found = [made for line in columns if (made := self._column(line, first))]
        found += map(_added, (column for column in self.view.columns if column.source < 0))
        body = ",\n  ".join([*found, *keys])
        name = table_name(*self.view.name).decode()
        sql = f"CREATE TABLE {name} (\n  {body}\n){self._tail(tail)}"
        return Definition(sql, tuple(self.left_out))

    def _first_column(self, key: str) -> str:
        names = [token for token in _tokens(key[key.index("(") :]) if _is_name(token)]
        return _name(names[0]).lower() if names else ""

    def _mentions(self, tokens: Tokens, *, words: bool = False) -> bool:
        named = {_name(token).lower() for token in tokens if _is_name(token)}
        if words:
            named |= {token.lower() for token in tokens}
        return not named.isdisjoint(self.touched)

    # ---- columns

    def _column(self, line: list[str], first: set[str]) -> str:
        old = _name(line[0])
        column = self.columns.get(old.lower())
        if column is None:
            return ""
        rest = self._plain(line[1:], old)
        if column.name.lower() not in first:
            words = [place for place, word in _top_words(rest) if word == "AUTO_INCREMENT"]
            rest = [token for place, token in enumerate(rest) if place not in words]
        if column.mask is not None:
            return f"{_quoted(column.name)} {self._masked_type(rest, column)}"
        rest = self._without(rest, "CHECK", f"a CHECK of {old}")
        rest = self._without(rest, "DEFAULT", f"the default of {old}")
        return _quoted(column.name) + "".join(rest)

    def _plain(self, rest: list[str], old: str) -> list[str]:
        """Without the expression of a generated column that the target could not compute alike."""
        found = [(place, word) for place, word in _top_words(rest) if word == "AS"]
        if not found:
            return list(rest)
        at = found[0][0]
        start, end = _next_group(rest, at)
        if not self._mentions(rest[start:end]) and old.lower() not in self.touched:
            return list(rest)
        words = dict(_top_words(rest))
        begin = next((place for place, word in words.items() if word == "GENERATED"), at)
        after = [
            token
            for place, token in enumerate(rest)
            if place >= end and words.get(place) not in ("VIRTUAL", "STORED", "PERSISTENT")
        ]
        self.left_out.append(f"the expression of the generated column {old}")
        return [*rest[:begin], *after]

    def _without(self, rest: list[str], word: str, what: str) -> list[str]:
        """Without a clause whose group in brackets names a column that changes."""
        for place, found in _top_words(rest):
            if found != word:
                continue
            following = next(
                (at for at in range(place + 1, len(rest)) if not rest[at].isspace()), None
            )
            if following is None or rest[following] != "(":
                continue
            end = _group_end(rest, following)
            if self._mentions(rest[following:end]):
                self.left_out.append(what)
                return [*rest[:place], *rest[end:]]
        return rest

    def _masked_type(self, rest: Tokens, column: ViewColumn) -> str:
        assert column.mask is not None
        source = self.schema.columns[column.source]
        null = "NULL" if source.nullable else "NOT NULL"
        if column.mask.kind is MaskKind.HMAC:
            return f"varchar(64) CHARACTER SET ascii COLLATE ascii_bin {null}"
        end = next(
            (
                place
                for place, word in _top_words(rest)
                if word in _AFTER_TYPE or word.startswith("/*")
            ),
            len(rest),
        )
        text = "".join(rest[:end]).strip()
        if column.mask.kind is MaskKind.TRUNCATE and source.type.code is TypeCode.STRING:
            text = re.sub(r"^binary\b", "varbinary", text)
        return f"{text} {null}"

    # ---- keys and constraints

    def _rest(self, line: list[str]) -> str:
        words = [word for _, word in _top_words(line)]
        if words[0] in _KEYS:
            return self._key(line, words)
        if "FOREIGN" in words:
            return self._foreign_key(line)
        if self._mentions(line[2:]):
            self.left_out.append("a CHECK or a period of columns that change")
            return ""
        if words[0] == "CONSTRAINT":
            place = next(at for at, token in enumerate(line) if _is_name(token))
            return "".join(line[place + 1 :]).strip()
        return "".join(line)

    def _key(self, line: list[str], words: list[str]) -> str:
        start, end = _next_group(line)
        inside, depth, masked = line[start:end], 0, False
        for place, token in enumerate(inside):
            depth += (token == "(") - (token == ")")
            if not _is_name(token):
                continue
            old = _name(token).lower()
            column = self.columns.get(old)
            if old not in self.touched:
                continue
            if column is None or depth > 1:
                return self._leave_key(line)
            if column.mask is not None:
                source = self.schema.columns[column.source]
                is_unique = words[0] in ("PRIMARY", "UNIQUE")
                if is_unique and mask_problem(column.mask, source, is_key=True):
                    return self._leave_key(line)
                if words[0] in ("FULLTEXT", "SPATIAL", "VECTOR"):
                    return self._leave_key(line)
                masked |= column.mask.kind is MaskKind.HMAC
            inside[place] = _quoted(column.name)
        text = "".join(inside)
        if masked:  # a prefix of a longer type
            text = re.sub(r"`\(\d+\)", "`", text)
        return "".join(line[:start]) + text + "".join(line[end:])

    def _leave_key(self, line: list[str]) -> str:
        _, end = _next_group(line)
        self.left_out.append("".join(line[:end]))
        return ""

    def _foreign_key(self, line: list[str]) -> str:
        at = next(place for place, word in _top_words(line) if word == "FOREIGN")
        own_begin, own_end = _next_group(line, at)
        theirs_begin, theirs_end = _next_group(line, own_end)
        names = [_name(token) for token in line[own_end:theirs_begin] if _is_name(token)]
        key = (names[0], names[1]) if len(names) > 1 else (self.schema.database, names[0])
        is_own = key == (self.schema.database, self.schema.table)
        parent = Parent.of(self.view, self.schema) if is_own else self.find_parent(*key)
        own = Parent.of(self.view, self.schema).columns
        columns = [
            own.get(_name(token).lower()) for token in line[own_begin:own_end] if _is_name(token)
        ]
        if parent is None:
            return self._leave_foreign(line)
        theirs = [
            parent.columns.get(_name(token).lower())
            for token in line[theirs_begin:theirs_end]
            if _is_name(token)
        ]
        if None in columns or None in theirs:
            return self._leave_foreign(line)
        return (
            f"FOREIGN KEY ({_listed(columns)}) REFERENCES {table_name(*parent.name).decode()}"
            f" ({_listed(theirs)}){''.join(line[theirs_end:])}"
        )

    def _leave_foreign(self, line: list[str]) -> str:
        self.left_out.append("".join(line))
        return ""

    def _tail(self, tail: list[str]) -> str:
        place = next((at for at, token in enumerate(tail) if _PARTITIONS.match(token)), None)
        if place is None or not self._mentions(tail[place:], words=True):
            return "".join(tail)
        self.left_out.append("the partitions")
        return re.sub(r"/\*!\d+\s*$", "", "".join(tail[:place])).rstrip()


def _listed(names: Sequence[str | None]) -> str:
    return ",".join(_quoted(name) for name in names if name is not None)


def _added(column: ViewColumn) -> str:
    type_ = column.column.type
    if type_.code is TypeCode.LONGLONG:
        return f"{_quoted(column.name)} bigint NOT NULL"
    characters = type_.parameter // 4
    return f"{_quoted(column.name)} varchar({characters}) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL"
