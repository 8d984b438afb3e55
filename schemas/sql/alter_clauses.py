"""The effects of ALTER TABLE, CREATE INDEX and DROP INDEX on a table's definition. Pure.

    ADD c INT, DROP KEY k       added={column c}, dropped={key k}
    ADD INDEX (v)               unnamed={key}: the server chooses the name
    MODIFY c INT, COMMENT 'x'   repeatable: the same effect if it is executed twice
    RENAME TO u                 moves: another table is there afterwards
    EXCHANGE PARTITION …        swaps: it undoes itself if it is executed twice

Guarantees: a closed list of keywords decides, and anything else is not repeatable. Names are in lower case.
Not done here: comparing definitions (``consumer.write.ddl_outcome``).
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

from millrace.schemas.sql.statement import Kind, Statement
from millrace.schemas.sql.tokens import SqlMode, Token, tokenize

Item = tuple[str, str]  # kind (column, key, constraint, partition) and name

OPTIONS = {
    *("ENGINE", "COMMENT", "DEFAULT", "CHARACTER", "CHARSET", "COLLATE", "AUTO_INCREMENT", "FORCE"),
    *(
        "ROW_FORMAT",
        "KEY_BLOCK_SIZE",
        "STATS_PERSISTENT",
        "STATS_AUTO_RECALC",
        "STATS_SAMPLE_PAGES",
    ),
    *("COMPRESSION", "ENCRYPTION", "ENCRYPTED", "ENCRYPTION_KEY_ID", "PAGE_COMPRESSED", "CHECKSUM"),
    *("PAGE_COMPRESSION_LEVEL", "AVG_ROW_LENGTH", "MAX_ROWS", "MIN_ROWS", "PACK_KEYS", "TYPE"),
    *("DELAY_KEY_WRITE", "INSERT_METHOD", "PAGE_CHECKSUM", "TRANSACTIONAL", "SECONDARY_ENGINE"),
    *("AUTOEXTEND_SIZE", "ENGINE_ATTRIBUTE", "SECONDARY_ENGINE_ATTRIBUTE"),
    *("ALGORITHM", "LOCK", "WITH", "WITHOUT", "ENABLE", "DISABLE"),
}
_REPEATABLE = {"MODIFY", "ALTER", "ORDER", "PARTITION", *OPTIONS}
KEY_WORDS = {"INDEX", "KEY", "UNIQUE", "FULLTEXT", "SPATIAL", "VECTOR", "PRIMARY", "FOREIGN"}
KEY_WORDS |= {"CONSTRAINT", "CHECK", "PERIOD", "SYSTEM", "PARTITION"}
# of a column's definition, after its type and DEFAULT
_ATTRIBUTES = KEY_WORDS | {
    *(
        "DEFAULT",
        "COMMENT",
        "COLLATE",
        "ON",
        "REFERENCES",
        "AFTER",
        "FIRST",
        "STORAGE",
        "COLUMN_FORMAT",
    ),
    *("INVISIBLE", "VISIBLE", "COMPRESSED", "WITH", "WITHOUT", "SRID", "GENERATED"),
}
_REPEATED_PARTITIONS = {"TRUNCATE", "ANALYZE", "CHECK", "OPTIMIZE", "REBUILD", "REPAIR"}


@dataclass(frozen=True, slots=True)
class Clauses:
    """The effects of all clauses. ``names``: every name and keyword after the table's name.

    ``truncated``: the partitions that it empties; "ALL" for all.
    """

    added: frozenset[Item] = frozenset()
    dropped: frozenset[Item] = frozenset()
    unnamed: frozenset[str] = frozenset()
    names: frozenset[str] = frozenset()
    truncated: tuple[str, ...] = ()
    has_options: bool = False
    moves: bool = False
    swaps: bool = False
    is_repeatable: bool = False

    @property
    def shows(self) -> bool:
        """Whether the definition shows for certain that it was executed, or that it was not."""
        both = {name for _, name in self.added} & {name for _, name in self.dropped}
        if both or (self.unnamed and self.dropped):
            return False  # the definition may be the same as before
        return bool(self.added or self.dropped or self.unnamed)


def clauses_of(statement: Statement, sql: str, mode: SqlMode) -> Clauses:
    """The effects of an ALTER TABLE, CREATE INDEX or DROP INDEX; of another statement: none."""
    if not statement.tables:
        return Clauses()
    if statement.kind in (Kind.CREATE_INDEX, Kind.DROP_INDEX):
        return _index(_tokens(sql, mode), statement.kind)
    if statement.kind is not Kind.ALTER_TABLE:
        return Clauses()
    body = alter_body(statement, sql, mode)
    reading = _Reading()
    for part in parts(body):
        rest = [token for token in body if part and token.start >= part[0].start]
        reading.read(part, rest)
        if reading.takes_rest:
            break
    names = frozenset(token.name.lower() for token in body if token.kind in ("word", "quoted"))
    return reading.result(names, _truncated(body))


def alter_body(statement: Statement, sql: str, mode: SqlMode) -> list[Token]:
    """The tokens of an ALTER TABLE after the table's name."""
    tokens = _tokens(sql, mode)
    return _without_wait([token for token in tokens if token.start >= statement.tables[0].end])


def _tokens(sql: str, mode: SqlMode) -> list[Token]:
    return [token for token in tokenize(sql, mode) if not is_mark(token, ";")]


def is_mark(token: Token, mark: str) -> bool:
    """Whether it is this character, and no name in quotes."""
    return token.kind == "mark" and token.name == mark


def _without_wait(body: list[Token]) -> list[Token]:
    """Without MariaDB's ``WAIT n`` or ``NOWAIT``, which come before the first clause."""
    first = body[0].word if body else ""
    return body[{"WAIT": 2, "NOWAIT": 1}.get(first, 0) :]


def _truncated(body: list[Token]) -> tuple[str, ...]:
    if [token.word for token in body[:2]] != ["TRUNCATE", "PARTITION"]:
        return ()
    return tuple(token.name for token in body[2:] if token.kind in ("word", "quoted"))


def _index(tokens: list[Token], kind: Kind) -> Clauses:
    names = frozenset(token.name.lower() for token in tokens if token.kind in ("word", "quoted"))
    reader = Words(tokens)
    while reader.next() != "INDEX":
        pass
    if reader.next_word() == "IF":
        return Clauses(names=names, is_repeatable=True)
    named = frozenset({("key", reader.name())})
    if kind is Kind.CREATE_INDEX:
        return Clauses(added=named, names=names)
    return Clauses(dropped=named, names=names)


def parts(tokens: list[Token]) -> Iterator[list[Token]]:
    """The parts between commas outside of parentheses. A list of partitions is several parts."""
    part: list[Token] = []
    depth = 0
    for token in tokens:
        if token.kind == "mark":
            depth += {"(": 1, ")": -1}.get(token.name, 0)
            if token.name == "," and not depth:
                yield part
                part = []
                continue
        part.append(token)
    yield part


def is_about_partitions(first: str, second: str) -> bool:
    """Whether a clause that begins with these words is about partitions, and takes the rest of the statement."""
    return second == "PARTITION" and first not in OPTIONS


class Words:
    """A cursor over the tokens of one clause."""

    def __init__(self, tokens: list[Token]) -> None:
        self._tokens = tokens
        self._at = 0

    def next_word(self, ahead: int = 0) -> str:
        """The keyword or mark there, "" for another token or at the end."""
        at = self._at + ahead
        if at >= len(self._tokens):
            return ""
        token = self._tokens[at]
        return token.name if token.kind == "mark" else token.word

    def next(self) -> str:
        """Take one; see ``next_word``."""
        word = self.next_word()
        self._at += 1
        return word

    def take(self, *words: str) -> bool:
        """Skip one of these and return True if it comes next."""
        if self.next_word() in words:
            self._at += 1
            return True
        return False

    @property
    def is_empty(self) -> bool:
        """Whether there was no token."""
        return not self._tokens

    def name(self) -> str:
        """Take a name, in lower case."""
        return self.exact_name().lower()

    def exact_name(self) -> str:
        """Take a name, as it is written."""
        self._at += 1
        return self._tokens[self._at - 1].name if self._at <= len(self._tokens) else ""

    def names(self) -> list[str]:
        """Take a list of names."""
        found = [self.name()]
        while self.take(","):
            found.append(self.name())
        return found

    def words(self) -> list[str]:
        """All keywords and marks outside of parentheses from here on."""
        found, depth = [], 0
        for token in self._tokens[self._at :]:
            if token.kind == "mark":
                depth += {"(": 1, ")": -1}.get(token.name, 0)
            elif not depth:
                found.append(token.word)
        return found

    def expression_names(self) -> frozenset[str]:
        """All names and keywords from here on inside parentheses or of a DEFAULT, in lower case.

        MariaDB takes an expression without parentheses there. It ends at an attribute of the column.
        """
        depth, is_default, names = 0, False, set[str]()
        before = ""  # the token before: "mark", "DEFAULT", or "" for another
        for token in self._tokens[self._at :]:
            if token.kind == "mark":
                depth += {"(": 1, ")": -1}.get(token.name, 0)
                before = "" if token.name == ")" else "mark"
                continue
            if not depth and not before and token.kind == "word" and token.word in _ATTRIBUTES:
                is_default = token.word == "DEFAULT"
                before = token.word if is_default else ""
                continue
            if depth or is_default:
                names.add(token.name.lower())
            before = ""
        return frozenset(names)

    def inside_parentheses(self) -> list[Token]:
        """The tokens inside ``(…)``, which comes next."""
        depth = 0
        for at in range(self._at, len(self._tokens)):
            token = self._tokens[at]
            if token.kind == "mark":
                depth += {"(": 1, ")": -1}.get(token.name, 0)
            if not depth:
                return self._tokens[self._at + 1 : at]
        return self._tokens[self._at + 1 :]

    def in_parentheses(self) -> Iterator[str]:
        """Take ``(…, …)``: the first name of each part, "" for a keyword that begins a key."""
        depth, is_first = 0, False
        while self._at < len(self._tokens):
            token = self._tokens[self._at]
            self._at += 1
            if token.kind == "mark" and token.name in "()":
                depth += 1 if token.name == "(" else -1
                is_first = depth == 1 and token.name == "("
                if not depth:
                    return
            elif token.kind == "mark" and token.name == "," and depth == 1:
                is_first = True
            elif is_first:
                is_first = False
                yield "" if token.word in KEY_WORDS else token.name.lower()

    def partitions(self) -> list[str]:
        """The names after each PARTITION inside parentheses."""
        found, depth = [], 0
        for place, token in enumerate(self._tokens):
            if token.kind == "mark":
                depth += {"(": 1, ")": -1}.get(token.name, 0)
            if depth == 1 and token.word == "PARTITION" and place + 1 < len(self._tokens):
                found.append(self._tokens[place + 1].name.lower())
        return found


class _Reading:
    """Collects the effects of clauses."""

    def __init__(self) -> None:
        self._added: set[Item] = set()
        self._dropped: set[Item] = set()
        self._unnamed: set[str] = set()
        self._moves = self._swaps = self._has_options = False
        self._is_repeatable = True
        self.takes_rest = False

    def result(self, names: frozenset[str], truncated: tuple[str, ...]) -> Clauses:
        """All of them."""
        return Clauses(
            frozenset(self._added),
            frozenset(self._dropped),
            frozenset(self._unnamed),
            names,
            truncated,
            self._has_options,
            self._moves,
            self._swaps,
            self._is_repeatable,
        )

    def read(self, tokens: list[Token], rest: list[Token]) -> None:
        """Add one clause. ``rest``: all tokens from its first one on."""
        reader = Words(tokens)
        first, second = reader.next_word(), reader.next_word(1)
        if is_about_partitions(first, second):
            self.takes_rest = True
            self._partition(Words(rest))
        elif first == "ADD":
            self._add(reader)
        elif first == "DROP":
            self._drop(reader)
        elif first == "RENAME":
            self._rename(reader)
        elif first == "CHANGE":
            self._change(reader)
        elif first == "CONVERT":
            self._moves |= second in ("PARTITION", "TABLE")
            self._has_options = True
            self._is_repeatable &= second == "TO"
        elif first in _REPEATABLE:
            self.takes_rest = first in ("ORDER", "PARTITION")
            self._has_options |= first not in ("MODIFY", "ALTER")
            self._is_repeatable &= not {"REMOVE", "DISCARD", "IMPORT"} & set(reader.words())
        elif tokens:
            self._is_repeatable = False
            self._has_options = True

    def _partition(self, reader: Words) -> None:
        verb = reader.next()
        reader.next()
        self._has_options = True
        if verb == "CONVERT":
            self._moves = True
        elif verb == "EXCHANGE":
            self._swaps = True
        self._is_repeatable &= verb in _REPEATED_PARTITIONS or reader.next_word() == "IF"
        if verb in _REPEATED_PARTITIONS or reader.next_word() == "IF":
            return
        if verb in ("ADD", "REORGANIZE"):
            self._added |= {("partition", name) for name in reader.partitions()}
        if verb in ("DROP", "REORGANIZE"):
            self._dropped |= {("partition", name) for name in reader.names()}

    def _add(self, reader: Words) -> None:
        reader.next()
        is_column = reader.take("COLUMN")
        words = [reader.next_word(ahead) for ahead in range(4)]
        if ("IF", "NOT") in pairwise(words):
            return  # IF NOT EXISTS; IF( is a function
        self._is_repeatable = False
        if not is_column and reader.next_word() in KEY_WORDS:
            self._add_key(reader)
        elif reader.next_word() == "(":
            names = list(reader.in_parentheses())
            self._added |= {("column", name) for name in names if name}
        else:
            self._added.add(("column", reader.name()))

    def _add_key(self, reader: Words) -> None:
        first = reader.next()
        if first == "PRIMARY":
            self._added.add(("key", "primary"))
        elif first == "CONSTRAINT":
            named = reader.next_word() not in ("PRIMARY", "UNIQUE", "FOREIGN", "CHECK")
            name = reader.name() if named else ""
            if reader.take("PRIMARY"):
                self._added.add(("key", "primary"))
            elif reader.take("UNIQUE"):
                reader.take("INDEX", "KEY")
                own = reader.next_word() not in ("(", "USING")
                self._add_named("key", reader.name() if own else name)
            else:
                self._add_named("constraint", name)
        elif first in ("FOREIGN", "CHECK"):
            self._unnamed.add("constraint")
        elif first in ("INDEX", "KEY", "UNIQUE", "FULLTEXT", "SPATIAL", "VECTOR"):
            if first not in ("INDEX", "KEY"):
                reader.take("INDEX", "KEY")
            own = reader.next_word() not in ("(", "USING")
            self._add_named("key", reader.name() if own else "")
        else:
            self._has_options = True

    def _add_named(self, kind: str, name: str) -> None:
        if name:
            self._added.add((kind, name))
        else:
            self._unnamed.add(kind)

    def _drop(self, reader: Words) -> None:
        reader.next()
        kind = "column"
        if reader.take("PRIMARY"):
            self._is_repeatable = False
            self._dropped.add(("key", "primary"))
            return
        if reader.take("FOREIGN"):
            kind = "constraint"
            reader.take("KEY")
        elif reader.take("INDEX", "KEY"):
            kind = "key"
        elif reader.take("CONSTRAINT", "CHECK"):
            kind = "constraint"
        elif reader.take("SYSTEM", "PERIOD"):
            self._is_repeatable = False
            self._has_options = True
            return
        else:
            reader.take("COLUMN")
        if reader.next_word() == "IF":
            return
        self._is_repeatable = False
        self._dropped.add((kind, reader.name()))

    def _rename(self, reader: Words) -> None:
        reader.next()
        kind = {"COLUMN": "column", "INDEX": "key", "KEY": "key"}.get(reader.next_word())
        if kind is None:
            self._is_repeatable = False
            self._moves = True
            return
        reader.next()
        if reader.next_word() == "IF":
            return
        self._is_repeatable = False
        self._replace(kind, reader)

    def _change(self, reader: Words) -> None:
        reader.next()
        reader.take("COLUMN")
        if reader.next_word() == "IF":
            return
        self._replace("column", reader)

    def _replace(self, kind: str, reader: Words) -> None:
        old = reader.name()
        reader.take("TO")
        new = reader.name()
        if old != new:
            self._is_repeatable = False
            self._dropped.add((kind, old))
            self._added.add((kind, new))
