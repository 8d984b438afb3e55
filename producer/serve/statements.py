"""The few statements that replication clients and drivers send, parsed. Pure.

    SELECT expression [AS name] [, …] [FROM DUAL] [LIMIT n]
    SET {@user | [GLOBAL | SESSION] name | @@[scope.]name} {= | :=} expression [, …]      SET NAMES …
    SHOW …                                                                               (``Show``)
    BEGIN, START TRANSACTION, COMMIT, ROLLBACK                                           (no effect)

An expression is a text, a number, NULL, TRUE, FALSE, @user, @@[scope.]system, or a function of expressions. Anything
else is Refusal 1235 with the statement, as a server answers what it does not support.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeAlias

from millrace.producer.serve.wire import Refusal, Value

DEPTH_MAX = 20  # clients nest two functions
SHOWN_MAX = 200  # of a refused statement
_TOKEN = re.compile(
    r"""(?P<space>[ \t\n\v\f\r]+|/\*.*?\*/|--[ \t\n\v\f\r][^\n]*|\#[^\n]*)
    |(?P<text>'(?:[^'\\]|\\.|'')*'|"(?:[^"\\]|\\.|"")*")
    |(?P<name>`(?:[^`]|``)+`)
    |(?P<system>@@[\w.$]+)
    |(?P<user>@[\w.$]+)
    |(?P<number>-?[0-9]{1,20}(?![0-9]))
    |(?P<word>[^\W\d][\w$]*)
    |(?P<mark>:=|[(),=;.*])""",
    re.VERBOSE | re.DOTALL,
)
_SCOPES = ("GLOBAL", "SESSION", "LOCAL", "PERSIST", "PERSIST_ONLY")
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "0": "\0"}


@dataclass(frozen=True, slots=True)
class System:
    """A system variable, in lower case, without its scope."""

    name: str
    is_global: bool = False


@dataclass(frozen=True, slots=True)
class User:
    name: str


@dataclass(frozen=True, slots=True)
class Literal:
    """A constant."""

    value: Value


@dataclass(frozen=True, slots=True)
class Call:
    name: str
    arguments: "tuple[Expression, ...]"


Expression: TypeAlias = System | User | Literal | Call


@dataclass(frozen=True, slots=True)
class Select:
    """One row: titles and expressions."""

    columns: tuple[tuple[str, Expression], ...]


@dataclass(frozen=True, slots=True)
class Assign:
    """The assignments of a SET, in order; none for SET NAMES."""

    values: tuple[tuple[System | User, Expression], ...]


@dataclass(frozen=True, slots=True)
class Show:
    """The words after SHOW, in upper case and joined by blanks, and what limits the rows.

    ``like``: a pattern. ``names``: the names of a WHERE. ``file``, ``pos``, ``limit``: of SHOW BINLOG EVENTS.
    """

    what: str
    like: str | None = None
    names: tuple[str, ...] | None = None
    file: str = ""
    pos: int = 0
    limit: int | None = None


@dataclass(frozen=True, slots=True)
class Nothing:
    """A statement without effect on a reader."""


Statement: TypeAlias = Select | Assign | Show | Nothing


@dataclass(frozen=True, slots=True)
class _Token:
    kind: str
    text: str
    begin: int
    end: int


def parse_statement(sql: str) -> Statement:
    """Parse one statement. Refusal 1235, 1065."""
    return _Parser(sql).statement()


def is_like(text: str, pattern: str) -> bool:
    """Whether a text matches a LIKE pattern, without regard to letter case.

    At most len(text) × len(pattern) steps: after a mismatch only the last % takes one more letter.
    """
    parts, letters = _like_parts(pattern), text.lower()
    at = part = 0
    many, tried = -1, 0  # the last %, and the letters before which it has ended
    while at < len(letters):
        if part < len(parts) and parts[part] == "%":
            many, tried = part, at
            part += 1
        elif part < len(parts) and parts[part] in ("_", "=" + letters[at]):
            at, part = at + 1, part + 1
        elif many >= 0:
            tried += 1
            at, part = tried, many + 1
        else:
            return False
    return all(one == "%" for one in parts[part:])


def _like_parts(pattern: str) -> list[str]:
    parts, is_escaped = [], False
    for letter in pattern.lower():
        if letter == "\\" and not is_escaped:
            is_escaped = True
            continue
        parts.append(letter if letter in "%_" and not is_escaped else "=" + letter)
        is_escaped = False
    return parts


def refused(sql: str) -> Refusal:
    """The error for a statement that is not supported."""
    shown = sql if len(sql) <= SHOWN_MAX else f"{sql[:SHOWN_MAX]}…"
    return Refusal(1235, "42000", f"Millrace serves a relay log and does not support: {shown}")


class _Parser:
    def __init__(self, sql: str) -> None:
        self._sql = sql
        self._tokens = list(self._split())
        self._at = 0
        self._depth = 0  # of nested functions

    def statement(self) -> Statement:
        if not self._tokens:
            raise Refusal(1065, "42000", "Query was empty")
        made = self._statement()
        self._take_mark(";")
        if self._at < len(self._tokens):
            raise refused(self._sql)
        return made

    def _statement(self) -> Statement:
        match self._word():
            case "SELECT":
                return self._select()
            case "SET":
                return self._set()
            case "SHOW":
                return self._show()
            case "BEGIN" | "COMMIT" | "ROLLBACK":
                return Nothing()
            case "START" if self._take_word("TRANSACTION"):
                return Nothing()
            case _:
                raise refused(self._sql)

    def _select(self) -> Select:
        columns = []
        while True:
            begin = self._token().begin
            expression = self._expression()
            title = self._sql[begin : self._tokens[self._at - 1].end]
            if self._take_word("AS") or self._has_title():
                title = self._name()
            columns.append((title, expression))
            if not self._take_mark(","):
                break
        if self._take_word("FROM") and self._name().upper() != "DUAL":
            raise refused(self._sql)
        if self._take_word("LIMIT"):
            self._number()
        return Select(tuple(columns))

    def _has_title(self) -> bool:
        """Whether the next token names the column, without AS."""
        is_end = self._kind() == "word" and self._token().text.upper() in ("FROM", "LIMIT")
        return self._kind() in ("name", "text", "word") and not is_end

    def _set(self) -> Assign:
        if self._take_word("NAMES") or (self._take_word("CHARACTER") and self._take_word("SET")):
            self._at = len(self._tokens)
            return Assign(())
        if self._words_are("TRANSACTION") or self._words_are("SESSION", "TRANSACTION"):
            self._at = len(self._tokens)
            return Assign(())
        values = []
        while True:
            target = self._target()
            if not (self._take_mark("=") or self._take_mark(":=")):
                raise refused(self._sql)
            values.append((target, self._assigned()))
            if not self._take_mark(","):
                return Assign(tuple(values))

    def _target(self) -> System | User:
        if self._kind() in ("system", "user"):
            made = self._expression()
            assert isinstance(made, System | User)
            return made
        scope = next((word for word in _SCOPES if self._take_word(word)), "")
        return System(self._name().lower(), is_global=scope not in ("", "SESSION", "LOCAL"))

    def _assigned(self) -> Expression:
        """A word on the right of SET is a text: SET sql_mode = ANSI."""
        following = self._tokens[self._at + 1 : self._at + 2]
        if self._kind() == "word" and not (following and following[0].text == "("):
            return Literal(self._name())
        return self._expression()

    def _show(self) -> Show:
        words = []
        while self._kind() == "word" and self._token().text.upper() not in (
            "LIKE", "WHERE", "IN", "FROM", "LIMIT",
        ):  # fmt: skip
            words.append(self._word())
        if words and words[0] in _SCOPES:
            words = words[1:]
        what = " ".join(words)
        if what == "BINLOG EVENTS":
            return self._show_events(what)
        if self._take_word("LIKE"):
            return Show(what, like=self._text())
        if self._take_word("WHERE"):
            return self._show_where(what)
        return Show(what)

    def _show_events(self, what: str) -> Show:
        file = self._text() if self._take_word("IN") else ""
        pos = self._number() if self._take_word("FROM") else 4
        limit = self._number() if self._take_word("LIMIT") else None
        return Show(what, file=file, pos=pos, limit=limit)

    def _show_where(self, what: str) -> Show:
        names: list[str] = []
        while True:
            if self._name().lower() != "variable_name":
                raise refused(self._sql)
            if self._take_mark("="):
                names.append(self._text())
            elif self._take_word("LIKE"):
                pattern = self._text()
                if self._at < len(self._tokens) or names:
                    raise refused(self._sql)
                return Show(what, like=pattern)
            elif self._take_word("IN") and self._take_mark("("):
                names.append(self._text())
                while self._take_mark(","):
                    names.append(self._text())
                self._expect(")")
            else:
                raise refused(self._sql)
            if not self._take_word("OR"):
                return Show(what, names=tuple(name.lower() for name in names))

    # ---- expressions ---------------------------------------------------------------------------------

    def _expression(self) -> Expression:
        token = self._token()
        self._at += 1
        match token.kind:
            case "text":
                return Literal(_unquoted(token.text))
            case "number":
                return Literal(int(token.text))
            case "system":
                scope, _, name = token.text[2:].lower().rpartition(".")
                return System(name, is_global=scope == "global")
            case "user":
                return User(token.text[1:].lower())
            case "word":
                return self._word_expression(token)
            case _:
                raise refused(self._sql)

    def _word_expression(self, token: _Token) -> Expression:
        word = token.text.upper()
        if word in ("NULL", "TRUE", "FALSE"):
            return Literal(None if word == "NULL" else int(word == "TRUE"))
        if not self._take_mark("("):
            raise refused(self._sql)
        arguments: list[Expression] = []
        self._depth += 1
        if self._depth > DEPTH_MAX:
            raise refused(self._sql)
        while not self._take_mark(")"):
            if arguments:
                self._expect(",")
            arguments.append(self._expression())
        self._depth -= 1
        return Call(word, tuple(arguments))

    # ---- tokens --------------------------------------------------------------------------------------

    def _split(self) -> Iterator[_Token]:
        at = 0
        while at < len(self._sql):
            found = _TOKEN.match(self._sql, at)
            if found is None:
                raise refused(self._sql)
            kind = found.lastgroup or ""
            if kind != "space":
                yield _Token(kind, found[0], at, found.end())
            at = found.end()

    def _token(self) -> _Token:
        if self._at >= len(self._tokens):
            raise refused(self._sql)
        return self._tokens[self._at]

    def _kind(self) -> str:
        return self._tokens[self._at].kind if self._at < len(self._tokens) else ""

    def _word(self) -> str:
        if self._kind() != "word":
            raise refused(self._sql)
        self._at += 1
        return self._tokens[self._at - 1].text.upper()

    def _words_are(self, *words: str) -> bool:
        found = self._tokens[self._at : self._at + len(words)]
        return [token.text.upper() for token in found] == list(words)

    def _take_word(self, word: str) -> bool:
        is_next = self._kind() == "word" and self._token().text.upper() == word
        self._at += is_next
        return is_next

    def _take_mark(self, mark: str) -> bool:
        is_next = self._kind() == "mark" and self._token().text == mark
        self._at += is_next
        return is_next

    def _expect(self, mark: str) -> None:
        if not self._take_mark(mark):
            raise refused(self._sql)

    def _name(self) -> str:
        token = self._token()
        if token.kind not in ("word", "name", "text"):
            raise refused(self._sql)
        self._at += 1
        return token.text if token.kind == "word" else _unquoted(token.text)

    def _text(self) -> str:
        token = self._token()
        if token.kind != "text":
            raise refused(self._sql)
        self._at += 1
        return _unquoted(token.text)

    def _number(self) -> int:
        token = self._token()
        if token.kind != "number":
            raise refused(self._sql)
        self._at += 1
        return int(token.text)


def _unquoted(text: str) -> str:
    quote, inner = text[0], text[1:-1]
    inner = inner.replace(quote * 2, quote)
    if quote == "`":
        return inner
    return re.sub(r"\\(.)", lambda found: _ESCAPES.get(found[1], found[1]), inner, flags=re.DOTALL)
