"""Splits SQL text into tokens as MySQL's and MariaDB's scanners do, to find keywords and names.

    word      keyword or unquoted identifier
    quoted    `identifier` (also "…" under ANSI_QUOTES); its ``name`` is unquoted
    text      '…' or "…" string, with its escapes
    number    digits (also 0x…, 1.5e3)
    mark      any other single character

    comment   only the marks ``/*!`` and ``/*M!`` of an executable comment; see below

Ordinary comments (``-- ``, ``#``, ``/* */``) are skipped. Guarantees: every token has its position
(``sql[start:end]``), so a rewrite can replace only names. An unterminated string, name or comment ends at the end of
the text. Not done here: any grammar.

**Executable comments.** Which of them a server executes depends on its kind and version. So ``plain_text`` resolves
them by the rules of the server that executed the statement: before it is classified, recorded or sent to another
server. A text in which one is left has a ``comment`` token, and its classification is UNKNOWN.

                         MySQL                                   MariaDB
    /*! … */             executed                                executed
    /*M! … */            a comment                               executed
    /*!NNNNN … */        executed up to its own version          the same, but 50700 to 99999 are comments
    /*M!NNNNN … */       a comment                               executed up to its own version
    /*!NNNNNN … */       with a blank after it a version         a version
    /*+ … */             hints, which change no table            a comment

A server marks what it ignores: it logs ``/* 99999 … */``. So a comment of its own form in its binlog was executed,
also if its version is not known. A comment that is ignored may contain one level of ``/* */``; an executed one ends at
the first ``*/`` outside strings and comments, however many begin before it. Source: ``MY_LEX_LONG_COMMENT`` in
sql_lex.cc of both servers.

Blanks and letters are those of the servers' scanners: six blanks, and every character beyond ASCII is part of a name,
also U+3000 and U+0661.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from millrace.schemas.gtid import Flavour
from millrace.schemas.server_version import ServerVersion

TokenKind = Literal["word", "quoted", "text", "number", "mark", "comment"]

BLANKS = " \t\n\v\f\r"  # of a server's scanner
# Character sets whose no-break space is a blank for a server's scanner; in UTF-8 it is a letter.
_WITH_NO_BREAK_SPACE = frozenset(
    {
        *("armscii8", "cp1250", "cp852", "cp866", "dec8", "geostd8", "greek"),
        *("hebrew", "keybcs2", "latin1", "latin2", "latin5", "latin7"),
    }
)
_COMMENT = r"--(?=[\x00-\x20\x7f]|\Z)[^\n]*|#[^\n]*|/\*(?!M?!).*?(?:\*/|\Z)"
_SPACE = re.compile(rf"(?:[{BLANKS}]+|{_COMMENT})+", re.DOTALL)
_EXECUTABLE = re.compile(r"/\*M?!")
_WORD = re.compile(r"[A-Za-z0-9_$\u0080-\U0010ffff]+")
_NUMBER = re.compile(
    r"(?:0x[0-9A-Fa-f]+|0b[01]+|[0-9]+(?:\.[0-9]*)?(?:[eE][+-]?[0-9]+)?|\.[0-9]+(?:[eE][+-]?[0-9]+)?)"
    r"(?![A-Za-z0-9_$\u0080-\U0010ffff])"
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
        return self.name.upper() if self.kind == "word" and self.name.isascii() else ""


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
    if first == "/" and (found := _EXECUTABLE.match(sql, at)):
        return Token("comment", at, found.end(), "")
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


def with_plain_blanks(sql: str, charset: str, mode: SqlMode = DEFAULT_MODE) -> str:
    """A statement that was written in `charset`, with the blanks between its words as UTF-8 has them."""
    if "\xa0" not in sql or charset not in _WITH_NO_BREAK_SPACE:
        return sql
    pieces, kept = [], 0
    for token in tokenize(sql, mode):
        if token.kind == "word":
            pieces += [sql[kept : token.start], token.name.replace("\xa0", " ")]
            kept = token.end
    return "".join([*pieces, sql[kept:]])


# ---- executable comments ---------------------------------------------------------------------------

_PLAIN = re.compile(rf"[^'\"`/#*-]+|{_COMMENT}", re.DOTALL)
_OLD_VERSION = re.compile(r"[0-9]{5}")
_VERSION = {
    Flavour.MYSQL: re.compile(rf"[0-9]{{5}}(?:[0-9](?=[{BLANKS}]))?"),
    Flavour.MARIADB: re.compile(r"[0-9]{5,6}"),
}
_SIX_DIGITS_FROM = (8, 1, 0)  # MySQL
_MYSQL_ONLY = range(50700, 100000)  # versions that MariaDB leaves to MySQL


def plain_text(sql: str, server: ServerVersion, mode: SqlMode = DEFAULT_MODE) -> str:
    """The statement as `server` executed it, in a text that every server reads alike.

    What it executed of comments is part of the text. What it ignored, and hints, are removed. Ordinary comments stay.
    """
    if "/*" not in sql:
        return sql
    pieces = list(_pieces(sql, server, mode))
    return "".join(pieces).strip(BLANKS) if len(pieces) > 1 else sql


def _pieces(sql: str, server: ServerVersion, mode: SqlMode) -> Iterator[str]:
    """The parts of the text, with a blank for each comment that is removed and each mark of an executed one."""
    at = kept = 0
    is_inside = False  # an executed comment
    while at < len(sql):
        start, is_kept = at, False
        if mark := _EXECUTABLE.match(sql, at):
            content = _content(sql, mark, server)
            is_inside = is_inside or content is not None
            at = _end_of_ignored(sql, mark, server) if content is None else content
        elif is_inside and sql.startswith("*/", at):
            at, is_inside = at + 2, False
        elif plain := _PLAIN.match(sql, at):
            at, is_kept = plain.end(), not sql.startswith("/*+", at)
        else:
            is_kept = True
            at = _token(sql, at, mode, after_dot=False, after_name=False).end
        if not is_kept:
            yield sql[kept:start]
            yield " "
            kept = at
    yield sql[kept:]


def _content(sql: str, mark: re.Match[str], server: ServerVersion) -> int | None:
    """Where the content of an executable comment begins; None if the server ignored it."""
    is_mariadb = server.flavour is Flavour.MARIADB
    is_own = mark.group() == "/*M!"
    if is_own and not is_mariadb:
        return None
    has_six_digits = is_mariadb or not server.is_before(_SIX_DIGITS_FROM)
    number = (_VERSION[server.flavour] if has_six_digits else _OLD_VERSION).match(sql, mark.end())
    if number is None:
        return mark.end()
    version = int(number.group())
    if is_mariadb and not is_own and version in _MYSQL_ONLY:
        return None
    major, minor, patch = server.numbers
    is_later = server.is_known and version > major * 10_000 + minor * 100 + patch
    return None if is_later else number.end()


def _end_of_ignored(sql: str, mark: re.Match[str], server: ServerVersion) -> int:
    """The end of a comment that the server ignored. MySQL ends one of MariaDB's at the first ``*/``."""
    takes_nested = server.flavour is Flavour.MARIADB or mark.group() == "/*!"
    at = mark.end()
    while (end := sql.find("*/", at)) >= 0:
        nested = sql.find("/*", at, end) if takes_nested else -1
        if nested < 0:
            return end + 2
        inner_end = sql.find("*/", nested + 2)
        if inner_end < 0:
            break
        at = inner_end + 2
    return len(sql)
