"""Classifies a logged SQL statement and finds the tables it names. Capture and apply share this classifier.

    classify("ALTER TABLE a RENAME TO db2.b", "db1")
        → Statement(kind=ALTER_TABLE, tables=(db1.a, db2.b), references=(), databases=(), …)

    capture   writes the kind and the tables into the Ddl record, refuses statement-format DML
    apply     executes the kinds of APPLIED_KINDS, records and counts those of RECORDED_KINDS, is blocked by UNKNOWN;
              rewrites names by position: ``sql[name.start:name.end]`` is the name as written, with its qualifier

Guarantees: a closed list of keywords decides; anything else is UNKNOWN, never guessed. Rows never depend on the result.
A text with executable comments (``schemas.sql.tokens.plain_text`` resolves them) is UNKNOWN.
Not done here: columns are not parsed. Bodies of views, routines, triggers and events are not parsed either, so their
``tables`` is empty.

**Secrets.** A text that can hold a secret is recorded, shown and logged without it (``recorded_text``):

    accounts, foreign servers, plugins, replication     the first words
    routines, triggers, events                          the first words and the name: a body can do all of the above
    tables with a password for another server           the first words and the name; ``has_secret``
    an unknown statement with a word such as PASSWORD   its first word

A literal of a table or a view is data: a default value, a comment, an expression. It is recorded.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from enum import StrEnum

from millrace.schemas.sql.tokens import DEFAULT_MODE, SqlMode, Token, tokenize


class Kind(StrEnum):
    """The closed list of kinds."""

    CREATE_TABLE = "create_table"
    ALTER_TABLE = "alter_table"
    DROP_TABLE = "drop_table"
    RENAME_TABLE = "rename_table"
    TRUNCATE_TABLE = "truncate_table"
    CREATE_INDEX = "create_index"
    DROP_INDEX = "drop_index"
    CREATE_DATABASE = "create_database"
    ALTER_DATABASE = "alter_database"
    DROP_DATABASE = "drop_database"
    VIEW = "view"
    ROUTINE = "routine"
    TRIGGER = "trigger"
    EVENT = "event"
    SEQUENCE = "sequence"  # of MariaDB; ``tables`` are the sequences
    ACCOUNT = "account"  # users, roles, grants: the text is never recorded
    # tablespaces, plugins, components, foreign servers, resource groups, libraries
    SERVER = "server"
    MAINTENANCE = "maintenance"  # ANALYZE, OPTIMIZE, REPAIR, CHECK, FLUSH: no structure, no rows
    TEMPORARY = "temporary"  # temporary tables, which only their session sees
    TRANSACTION = "transaction"  # BEGIN, COMMIT, ROLLBACK, SAVEPOINT, XA …
    DML = "dml"  # statement format: changes that were not logged as rows
    UNKNOWN = "unknown"


APPLIED_KINDS = frozenset(
    {
        Kind.CREATE_TABLE,
        Kind.ALTER_TABLE,
        Kind.DROP_TABLE,
        Kind.RENAME_TABLE,
        Kind.TRUNCATE_TABLE,
        Kind.CREATE_INDEX,
        Kind.DROP_INDEX,
        Kind.CREATE_DATABASE,
        Kind.ALTER_DATABASE,
        Kind.DROP_DATABASE,
        Kind.SEQUENCE,
    }
)
RECORDED_KINDS = frozenset(
    {Kind.VIEW, Kind.ROUTINE, Kind.TRIGGER, Kind.EVENT, Kind.ACCOUNT, Kind.SERVER, Kind.MAINTENANCE}
)


@dataclass(frozen=True, slots=True)
class TableName:
    """A table as a statement names it; ``database`` is the default database if ``is_qualified`` is False.

    ``sql[start:end]`` is the name as written, with its qualifier.
    """

    database: str
    table: str
    start: int = field(compare=False)
    end: int = field(compare=False)
    is_qualified: bool = field(compare=False)


def _lower_case(name: TableName) -> TableName:
    return replace(name, database=name.database.lower(), table=name.table.lower())


@dataclass(frozen=True, slots=True)
class Statement:
    """A classified statement.

    ``verb`` holds the deciding keywords, such as "CREATE TABLE". ``tables`` are created, changed, renamed (old, new,
    old, new …) or dropped. ``references`` are only read (LIKE, REFERENCES). ``databases`` is set for statements about
    databases. ``opening``: where CREATE TABLE … SELECT in row format (MySQL 8), whose rows follow in the same source
    transaction, says START TRANSACTION; options and partitions may follow it. ``selects_rows``: CREATE TABLE … SELECT
    in statement format, whose rows were not logged. ``has_secret``: a table whose text holds a password for another
    server. ``head`` is the text up to the name, if the rest is not recorded.
    """

    kind: Kind
    verb: str
    tables: tuple[TableName, ...] = ()
    references: tuple[TableName, ...] = ()
    databases: tuple[str, ...] = ()
    opening: slice | None = None
    selects_rows: bool = False
    has_secret: bool = False
    head: str = ""

    def in_lower_case(self) -> "Statement":
        """The statement with names in lower case, as a server with ``lower_case_table_names=1`` stores them."""
        return replace(
            self,
            tables=tuple(map(_lower_case, self.tables)),
            references=tuple(map(_lower_case, self.references)),
            databases=tuple(map(str.lower, self.databases)),
        )

    def without_opening(self, sql: str) -> str:
        """The text without ``opening``."""
        if self.opening is None:
            return sql
        return sql[: self.opening.start] + sql[self.opening.stop :]

    def recorded_text(self, sql: str) -> str:
        """The text to record or show: without any part that can hold a secret."""
        return f"{self.head} …" if self.head else sql


def classify(sql: str, default_database: str, mode: SqlMode = DEFAULT_MODE) -> Statement:
    """Classifies one statement. Never raises: a statement that is not understood is UNKNOWN."""
    tokens = tokenize(sql, mode)
    first = next((token.word for token in tokens if token.word), "")
    if any(token.kind == "comment" for token in tokens):
        statement = Statement(Kind.UNKNOWN, first)
    else:
        statement = _classify(_Reader(tokens, default_database))
    return _without_secret(statement, sql, tokens)


def _without_secret(statement: Statement, sql: str, tokens: tuple[Token, ...]) -> Statement:
    """Sets ``head`` if the text can hold a secret."""
    kind, verb = statement.kind, statement.verb
    if kind in (Kind.ACCOUNT, Kind.SERVER):
        return replace(statement, head=verb)
    if kind in _WITH_BODY and not verb.startswith("DROP"):
        name = _name_of_object(tokens, verb.rpartition(" ")[2])
        return replace(statement, head=f"{verb} {sql[name]}" if name else verb)
    if kind is Kind.UNKNOWN and (verb == "SET" or _names_a_secret(sql, tokens)):
        return replace(statement, head=verb or "unknown statement")
    if kind in (Kind.CREATE_TABLE, Kind.ALTER_TABLE) and _connects_with_password(sql, tokens):
        table = statement.tables[0]
        head = f"{verb} {sql[table.start : table.end]}"
        return replace(statement, has_secret=True, head=head)
    return statement


def _name_of_object(tokens: tuple[Token, ...], keyword: str) -> slice | None:
    """Where a statement names its routine, trigger or event: after this keyword."""
    reader = _Reader(tokens, "")
    while not reader.at_end():
        if reader.take(keyword):
            reader.take("BODY")
            reader.take("IF", "NOT", "EXISTS") or reader.take("IF", "EXISTS")
            try:
                name = reader.table()
            except _NotUnderstoodError:
                return None
            return slice(name.start, name.end)
        reader.advance()
    return None


def _names_a_secret(sql: str, tokens: tuple[Token, ...]) -> bool:
    return any(
        _SECRET_WORD.search(token.name)
        if token.kind in ("word", "quoted")
        else token.kind != "mark" and _URL_WITH_PASSWORD.search(sql, token.start, token.end)
        for token in tokens
    )


def _connects_with_password(sql: str, tokens: tuple[Token, ...]) -> bool:
    """Whether a table connects to another server with a password: FEDERATED, SPIDER, CONNECT.

    CONNECTION = 'mysql://u:p@h/d', CONNECTION = 'DSN=x;PWD=p', COMMENT = 'password "p"', OPTION_LIST = 'Password=p'.
    """
    option = ""
    for token in tokens:
        if token.kind in ("word", "quoted"):
            option = token.name.upper()
        elif token.kind == "text" and option in _CONNECTING_OPTIONS:
            if any(
                rule.search(sql, token.start, token.end) for rule in _CONNECTING_OPTIONS[option]
            ):
                return True
            option = ""
        elif token.name != "=":
            option = ""
    return False


def _classify(reader: "_Reader") -> Statement:
    first = reader.word()
    if first in _DECIDED_BY_ONE_WORD:
        return Statement(_DECIDED_BY_ONE_WORD[first], first)
    rule = _RULES.get(first)
    if rule is None:
        return Statement(Kind.UNKNOWN, first)
    reader.advance()
    try:
        return rule(reader)
    except _NotUnderstoodError:
        return Statement(Kind.UNKNOWN, first)


def changed_table(sql: str, default_database: str, mode: SqlMode = DEFAULT_MODE) -> str:
    """The first table that a DML statement (INSERT, UPDATE, …) names, for messages; "" if none is found."""
    reader = _Reader(tokenize(sql, mode), default_database)
    verb = reader.word()
    reader.advance()
    if verb == "LOAD":
        while not reader.at_end() and not reader.take("INTO", "TABLE"):
            reader.advance()
    elif verb not in ("INSERT", "REPLACE", "UPDATE", "DELETE"):
        return ""
    while reader.take_any(*_BEFORE_A_TABLE):
        pass
    try:
        table = reader.table()
    except _NotUnderstoodError:
        return ""
    return f"{table.database}.{table.table}" if table.database else table.table


_BEFORE_A_TABLE = ("LOW_PRIORITY", "HIGH_PRIORITY", "DELAYED", "QUICK", "IGNORE", "INTO", "FROM")


class _NotUnderstoodError(Exception):
    """The statement does not have the form that its first keywords require."""


class _Reader:
    """A cursor over the tokens."""

    def __init__(self, tokens: tuple[Token, ...], default_database: str) -> None:
        self._tokens = tokens
        self._at = 0
        self._default_database = default_database

    def word(self, ahead: int = 0) -> str:
        place = self._at + ahead
        return self._tokens[place].word if place < len(self._tokens) else ""

    def advance(self, count: int = 1) -> None:
        self._at += count

    def at_end(self) -> bool:
        return self._at >= len(self._tokens)

    def take(self, *words: str) -> bool:
        """Skip these words and return True if they come next."""
        if all(self.word(ahead) == word for ahead, word in enumerate(words)):
            self._at += len(words)
            return True
        return False

    def taken(self, *words: str) -> slice | None:
        """Skip these words if they come next, and return where they are."""
        first = self._at
        if not self.take(*words):
            return None
        return slice(self._tokens[first].start, self._tokens[self._at - 1].end)

    def take_any(self, *words: str) -> bool:
        return any(self.take(word) for word in words)

    def take_mark(self, mark: str) -> bool:
        """Skip this character and return True if it comes next."""
        if self.at_end() or self._tokens[self._at].kind != "mark":
            return False
        if self._tokens[self._at].name != mark:
            return False
        self._at += 1
        return True

    def identifier(self) -> Token:
        if self.at_end() or self._tokens[self._at].kind not in ("word", "quoted"):
            raise _NotUnderstoodError
        self._at += 1
        return self._tokens[self._at - 1]

    def table(self) -> TableName:
        """``name``, ``db.name`` or ``.name``."""
        self.take_mark(".")
        first = self.identifier()
        if not self.take_mark("."):
            return TableName(self._default_database, first.name, first.start, first.end, False)
        second = self.identifier()
        return TableName(first.name, second.name, first.start, second.end, True)

    def default_database(self) -> str:
        return self._default_database


def _create(reader: _Reader) -> Statement:
    reader.take("OR", "REPLACE")
    if reader.take("TEMPORARY"):
        return Statement(Kind.TEMPORARY, "CREATE TEMPORARY TABLE")
    if reader.take("TABLE"):
        reader.take("IF", "NOT", "EXISTS")
        table = reader.table()
        references, selects, opening = _references(reader)
        return Statement(
            Kind.CREATE_TABLE,
            "CREATE TABLE",
            tables=(table,),
            references=references,
            opening=opening,
            selects_rows=selects,
        )
    if reader.take_any("DATABASE", "SCHEMA"):
        reader.take("IF", "NOT", "EXISTS")
        return Statement(
            Kind.CREATE_DATABASE, "CREATE DATABASE", databases=(reader.identifier().name,)
        )
    if reader.take("SEQUENCE"):
        reader.take("IF", "NOT", "EXISTS")
        return Statement(Kind.SEQUENCE, "CREATE SEQUENCE", tables=(reader.table(),))
    return _index(reader, "CREATE") or _stored_object(reader, "CREATE")


def _alter(reader: _Reader) -> Statement:
    while reader.take_any("ONLINE", "OFFLINE", "IGNORE"):
        pass
    if reader.take("TABLE"):
        reader.take("IF", "EXISTS")
        tables = [reader.table()]
        references: list[TableName] = []
        while not reader.at_end():
            _alter_clause(reader, tables, references)
        return Statement(
            Kind.ALTER_TABLE, "ALTER TABLE", tables=tuple(tables), references=tuple(references)
        )
    if reader.take_any("DATABASE", "SCHEMA"):
        named = reader.word() not in (
            "CHARACTER",
            "CHARSET",
            "COLLATE",
            "DEFAULT",
            "ENCRYPTION",
            "READ",
            "COMMENT",
            "UPGRADE",
        )
        name = reader.identifier().name if named else reader.default_database()
        return Statement(Kind.ALTER_DATABASE, "ALTER DATABASE", databases=(name,))
    if reader.take("SEQUENCE"):
        reader.take("IF", "EXISTS")
        return Statement(Kind.SEQUENCE, "ALTER SEQUENCE", tables=(reader.table(),))
    return _stored_object(reader, "ALTER")


def _alter_clause(reader: _Reader, tables: list[TableName], references: list[TableName]) -> None:
    """One step through the text after ALTER TABLE name; adds the other tables that it names."""
    if reader.take("RENAME"):
        if reader.word() in ("COLUMN", "INDEX", "KEY"):
            return
        reader.take_any("TO", "AS") or reader.take_mark("=")
        tables.append(reader.table())
    elif reader.take("WITH", "TABLE"):  # EXCHANGE PARTITION p WITH TABLE t; CONVERT PARTITION …
        tables.append(reader.table())
    elif reader.take("CONVERT", "PARTITION"):  # MariaDB: CONVERT PARTITION p TO TABLE t
        reader.identifier()
        if reader.take("TO", "TABLE"):
            tables.append(reader.table())
    elif reader.take("CONVERT", "TABLE"):  # MariaDB: CONVERT TABLE t TO PARTITION p
        tables.append(reader.table())
    elif reader.take("REFERENCES"):
        references.append(reader.table())
    else:
        reader.advance()


def _references(reader: _Reader) -> tuple[tuple[TableName, ...], bool, slice | None]:
    """After CREATE TABLE name: (tables that are read, selects_rows, opening)."""
    references: list[TableName] = []
    selects, opening = False, None
    reader.take_mark("(")
    if reader.take("LIKE"):
        references.append(reader.table())
    while not reader.at_end():
        if reader.take("REFERENCES"):
            references.append(reader.table())
        elif found := reader.taken("START", "TRANSACTION"):
            opening = found
        else:
            selects = selects or (
                reader.word() in ("SELECT", "VALUES", "TABLE") and not _is_partition_values(reader)
            )
            reader.advance()
    return tuple(references), selects and opening is None, opening


def _is_partition_values(reader: _Reader) -> bool:
    """True for VALUES LESS THAN and VALUES IN, which define a partition and no rows."""
    return reader.word() == "VALUES" and reader.word(1) in ("LESS", "IN")


def _drop(reader: _Reader) -> Statement:
    if reader.take("TEMPORARY"):
        return Statement(Kind.TEMPORARY, "DROP TEMPORARY TABLE")
    if reader.take_any("TABLE", "TABLES"):
        return Statement(Kind.DROP_TABLE, "DROP TABLE", tables=_dropped(reader))
    if reader.take("SEQUENCE"):
        return Statement(Kind.SEQUENCE, "DROP SEQUENCE", tables=_dropped(reader))
    if reader.take_any("DATABASE", "SCHEMA"):
        reader.take("IF", "EXISTS")
        return Statement(Kind.DROP_DATABASE, "DROP DATABASE", databases=(reader.identifier().name,))
    return _index(reader, "DROP") or _stored_object(reader, "DROP")


def _dropped(reader: _Reader) -> tuple[TableName, ...]:
    reader.take("IF", "EXISTS")
    tables = [reader.table()]
    while reader.take_mark(","):
        tables.append(reader.table())
    return tuple(tables)


def _index(reader: _Reader, verb: str) -> Statement | None:
    """CREATE [UNIQUE|FULLTEXT|SPATIAL|VECTOR] INDEX name … ON table, DROP INDEX name ON table."""
    ahead = 0
    while reader.word(ahead) in ("ONLINE", "OFFLINE", "UNIQUE", "FULLTEXT", "SPATIAL", "VECTOR"):
        ahead += 1
    if reader.word(ahead) != "INDEX":
        return None
    reader.advance(ahead + 1)
    while not reader.at_end():
        if reader.take("ON"):
            kind = Kind.CREATE_INDEX if verb == "CREATE" else Kind.DROP_INDEX
            return Statement(kind, f"{verb} INDEX", tables=(reader.table(),))
        reader.advance()
    raise _NotUnderstoodError


def _stored_object(reader: _Reader, verb: str) -> Statement:
    """Finds the keyword that names the kind, after ALGORITHM, DEFINER, SQL SECURITY, AGGREGATE …"""
    for _ in range(_WORDS_BEFORE_KIND_MAX):
        if reader.at_end():
            break
        word = reader.word()
        if word in _OBJECTS:
            return Statement(_OBJECTS[word], f"{verb} {word}")
        if reader.take("RESOURCE", "GROUP") or reader.take("SPATIAL", "REFERENCE"):
            return Statement(Kind.SERVER, f"{verb} {word}")
        reader.advance()
    raise _NotUnderstoodError


def _rename(reader: _Reader) -> Statement:
    if reader.take("USER"):
        return Statement(Kind.ACCOUNT, "RENAME USER")
    if not reader.take_any("TABLE", "TABLES"):
        raise _NotUnderstoodError
    reader.take("IF", "EXISTS")
    tables = []
    while True:
        tables.append(reader.table())
        if reader.word() in ("WAIT", "NOWAIT"):  # MariaDB
            while reader.word() != "TO" and not reader.at_end():
                reader.advance()
        if not reader.take("TO"):
            raise _NotUnderstoodError
        tables.append(reader.table())
        if not reader.take_mark(","):
            return Statement(Kind.RENAME_TABLE, "RENAME TABLE", tables=tuple(tables))


def _truncate(reader: _Reader) -> Statement:
    reader.take("TABLE")
    return Statement(Kind.TRUNCATE_TABLE, "TRUNCATE TABLE", tables=(reader.table(),))


def _analyze(reader: _Reader) -> Statement:
    reader.take_any("NO_WRITE_TO_BINLOG", "LOCAL")
    if reader.take_any("TABLE", "TABLES"):
        return Statement(Kind.MAINTENANCE, "ANALYZE")
    while not reader.at_end() and reader.word() not in _DECIDED_BY_ONE_WORD:
        reader.advance()  # MariaDB: ANALYZE FORMAT = JSON UPDATE … executes it
    return _classify(reader)


def _set(reader: _Reader) -> Statement:
    if reader.take("STATEMENT"):  # MariaDB: SET STATEMENT variable = value, … FOR statement
        while not reader.at_end():
            if reader.take("FOR"):
                return _classify(reader)
            reader.advance()
        raise _NotUnderstoodError
    for words in (("PASSWORD",), ("ROLE",), ("DEFAULT", "ROLE")):
        if reader.take(*words):
            return Statement(Kind.ACCOUNT, " ".join(["SET", *words]))
    raise _NotUnderstoodError


def _start(reader: _Reader) -> Statement:
    if reader.word() == "TRANSACTION":
        return Statement(Kind.TRANSACTION, "START TRANSACTION")
    return Statement(Kind.SERVER, "START")  # START REPLICA, START GROUP_REPLICATION


# CREATE OR REPLACE ALGORITHM = x DEFINER = `u`@`h` SQL SECURITY x VIEW: 13
_WORDS_BEFORE_KIND_MAX = 24
_OBJECTS = {
    "VIEW": Kind.VIEW,
    "PROCEDURE": Kind.ROUTINE,
    "FUNCTION": Kind.ROUTINE,
    "PACKAGE": Kind.ROUTINE,
    "LIBRARY": Kind.ROUTINE,
    "TRIGGER": Kind.TRIGGER,
    "EVENT": Kind.EVENT,
    "USER": Kind.ACCOUNT,
    "ROLE": Kind.ACCOUNT,
    "TABLESPACE": Kind.SERVER,
    "LOGFILE": Kind.SERVER,
    "SERVER": Kind.SERVER,
    "INSTANCE": Kind.SERVER,
}
_WITH_BODY = (Kind.ROUTINE, Kind.TRIGGER, Kind.EVENT)
_SECRET_WORD = re.compile(r"PASSW|PWD|SECRET|IDENTIFIED|CREDENTIAL", re.IGNORECASE)
_URL_WITH_PASSWORD = re.compile(r"//[^/]*:.*@", re.DOTALL)
_PASSWORD_FIELD = re.compile(r"(?:pass|passwd|password|pwd)\s*=", re.IGNORECASE)
_SPIDER_PASSWORD = re.compile(r"password\s*[\\]?[\"']", re.IGNORECASE)
_CONNECTING_OPTIONS = {
    "CONNECTION": (_URL_WITH_PASSWORD, _PASSWORD_FIELD, _SPIDER_PASSWORD),
    "OPTION_LIST": (_PASSWORD_FIELD,),
    "COMMENT": (_SPIDER_PASSWORD,),
}
_RULES: dict[str, Callable[[_Reader], Statement]] = {
    "CREATE": _create,
    "ALTER": _alter,
    "DROP": _drop,
    "RENAME": _rename,
    "TRUNCATE": _truncate,
    "SET": _set,
    "ANALYZE": _analyze,
    "START": _start,
}
_DECIDED_BY_ONE_WORD = {
    **dict.fromkeys(("GRANT", "REVOKE"), Kind.ACCOUNT),
    **dict.fromkeys(("INSTALL", "UNINSTALL", "CHANGE", "CLONE"), Kind.SERVER),
    **dict.fromkeys(("OPTIMIZE", "REPAIR", "CHECK", "FLUSH"), Kind.MAINTENANCE),
    **dict.fromkeys(
        ("BEGIN", "COMMIT", "ROLLBACK", "SAVEPOINT", "RELEASE", "XA"), Kind.TRANSACTION
    ),
    **dict.fromkeys(
        (
            "INSERT",
            "UPDATE",
            "DELETE",
            "REPLACE",
            "LOAD",
            "SELECT",
            "WITH",
            "CALL",
            "DO",
            "VALUES",
            "TABLE",
        ),
        Kind.DML,
    ),
}
