"""Splits SQL text into tokens as MySQL's and MariaDB's scanners do, to find keywords and names.

    word      keyword or unquoted identifier
    quoted    `identifier` (also "…" under ANSI_QUOTES); its ``name`` is unquoted
    text      '…' or "…" string, with its escapes
    number    digits (also 0x…, 1.5e3)
    mark      any other single character

Comments (``-- ``, ``#``, ``/* */``) are skipped. The content of ``/*! */``, ``/*!80000 */`` and ``/*M! */`` is part of
the statement, because the server executes it. Guarantees: every token has its position (``sql[start:end]``), so a
rewrite can replace only names. An unterminated string, name or comment ends at the end of the text. Not done here: any
grammar.
"""

import re
from dataclasses import dataclass
from typing import Literal

TokenKind = Literal["word", "quoted", "text", "number", "mark"]

_SPACE = re.compile(
    r"(?:\s+|--(?=[\s\x00-\x1f]|$)[^\n]*|#[^\n]*|\*/|/\*M?!\d*|/\*(?!M?!).*?(?:\*/|\Z))+", re.DOTALL
)
_WORD = re.compile(r"[A-Za-z0-9_$\u0080-\U0010ffff]+")
_NUMBER = re.compile(
    r"(?:0x[0-9A-Fa-f]+|0b[01]+|\d+(?:\.\d*)?(?:[eE][+-]?\d+)?|\.\d+(?:[eE][+-]?\d+)?)(?![A-Za-z0-9_$\u0080-\U0010ffff])"
)
_BACKTICKED = re.compile(r"`(?:[^`]|``)*(?:`|\Z)", re.DOTALL)
_DOUBLE_QUOTED = re.compile(r'"(?:[^"]|"")*(?:"|\Z)', re.DOTALL)
_TEXTS = {
    ("'", True): re.compile(r"'(?:[^'\\]|''|\\.)*(?:'|\\?\Z)", re.DOTALL),
    ("'", False): re.compile(r"'(?:[^']|'')*(?:'|\Z)", re.DOTALL),
    ('"', True): re.compile(r'"(?:[^"\\]|""|\\.)*(?:"|\\?\Z)', re.DOTALL),
    ('"', False): _DOUBLE_QUOTED,
}


@dataclass(frozen=True, slots=True)
class Token:
    """``sql[start:end]``; ``name`` is the identifier of a word or quoted, the character of a mark, else ""."""

    kind: TokenKind
    start: int
    end: int
    name: str

    @property
    def word(self) -> str:
        """The keyword in upper case, "" for anything else: a quoted name is never a keyword."""
        return self.name.upper() if self.kind == "word" else ""


@dataclass(frozen=True, slots=True)
class SqlMode:
    """The two SQL modes that change how text is split."""

    ansi_quotes: bool = False
    no_backslash_escapes: bool = False


DEFAULT_MODE = SqlMode()


def tokenize(sql: str, mode: SqlMode = DEFAULT_MODE) -> tuple[Token, ...]:
    """All tokens of one or more statements; ``;`` is a mark."""
    tokens: list[Token] = []
    at = 0
    while at < len(sql):
        if space := _SPACE.match(sql, at):
            at = space.end()
            continue
        last = tokens[-1] if tokens else None
        token = _token(
            sql,
            at,
            mode,
            after_dot=last is not None and sql[last.start] == ".",
            after_name=last is not None and last.end == at and last.kind in ("word", "quoted"),
        )
        tokens.append(token)
        at = token.end
    return tuple(tokens)


def _token(sql: str, at: int, mode: SqlMode, *, after_dot: bool, after_name: bool) -> Token:
    """``after_name``: it directly follows a name, so a dot here qualifies it: ``logs.202401`` contains no number."""
    first = sql[at]
    if first == "`" or (first == '"' and mode.ansi_quotes):
        found = (_BACKTICKED if first == "`" else _DOUBLE_QUOTED).match(sql, at)
        assert found is not None
        inner = found.group()[1:]
        inner = inner[:-1] if inner.endswith(first) else inner
        return Token("quoted", at, found.end(), inner.replace(first * 2, first))
    if first in "'\"":
        found = _TEXTS[first, not mode.no_backslash_escapes].match(sql, at)
        end = found.end() if found else len(sql)
        return Token("text", at, end, "")
    if after_name and first == ".":
        return Token("mark", at, at + 1, first)
    if not after_dot and (found := _NUMBER.match(sql, at)):
        return Token("number", at, found.end(), "")
    if found := _WORD.match(sql, at):
        return Token("word", at, found.end(), found.group())
    return Token("mark", at, at + 1, first)
