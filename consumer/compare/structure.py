"""The definitions of tables as a server has them, in words that both flavours share, and how two of them differ.

A definition is a text for each of its *places*:

    column NAME           type, collation, NULL, default, ON UPDATE, generated or not, invisible
    column order          the columns that both sides have
    key NAME              unique or not, its columns with prefix and direction, FULLTEXT, SPATIAL, WITHOUT OVERLAPS
    foreign key NAME      its columns, the parent's, what it does to child rows
    check NAME            the condition of a CHECK constraint
    partitioning          the method and its expression
    partition NAME        its values and its subpartitions
    engine, collation     of the table; the collation is that of later columns. That of the database has its own line
    kind                  a table, a system-versioned table, or a sequence

Two servers write one definition in different words. These count as equal, always:

    int(11), year(4)                      int, year: the width of a display changes no value, but with ZEROFILL
    utf8, utf8_bin                        utf8mb3, utf8mb3_bin
    geomcollection                        geometrycollection
    utf8mb4_0900_ai_ci, …_as_cs, …        utf8mb4_uca1400_nopad_ai_ci, …: MariaDB takes them for each other
    CURRENT_TIMESTAMP, current_timestamp()     and each default with or without quotes

And between the two flavours:

    json                                  longtext with utf8mb4_bin, whose CHECK (json_valid(…)) is not compared
    an expression                         any other: the servers print a generated column, a computed default, a part
                                          of a key and a CHECK differently, so only is compared whether there is one,
                                          and of CHECKs their number. A default of bytes, too
    the SRID of a column                  MariaDB does not show it

Not compared: AUTO_INCREMENT counters, comments, row formats and other options of tables. Views, triggers, routines and
events are named if one side shows no object of this name; what is in them is not compared. A server shows triggers,
routines and events only to an account with rights on them. Pure, but for ``read_definitions``.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field

from millrace.drivers.mysql.actions import Action
from millrace.drivers.mysql.catalog import ForeignKey, Inventory, TableKey
from millrace.drivers.mysql.connection import MySqlSession, text_of
from millrace.schemas.gtid import Flavour

Definition = Mapping[str, str]  # the text of each place
AN_EXPRESSION = "(an expression)"

_WIDTH = re.compile(r"(?<=int)\(\d+\)|(?<=year)\(4\)")
_UTF8 = re.compile(r"^utf8(?=_|$)")
_UCA = re.compile(r"^utf8mb4_0900_(ai_ci|as_ci|as_cs)$")
_NOW = re.compile(r"(?:current_timestamp|now)(?:\((\d*)\))?", re.IGNORECASE)
_NUMBER = re.compile(r"[-+]?\d+(\.\d+)?(e[-+]?\d+)?", re.IGNORECASE)
_ESCAPED = re.compile(r"\\(.)|''", re.DOTALL)
_BYTES = {"binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob"}
_ONLY_NAMED = {"view", "trigger", "function", "procedure", "event"}
_PLAIN_INDEXES = {"BTREE", "RTREE", "HASH"}


@dataclass(frozen=True, slots=True)
class Definitions:
    """Those of one server. ``databases``: the default collation of each.

    ``objects``: of each, what is no table, such as ``view v``, with its table: a view's own name, "" for a routine.
    """

    tables: Mapping[TableKey, Definition] = field(default_factory=dict)
    databases: Mapping[str, str] = field(default_factory=dict)
    objects: Mapping[str, Mapping[str, str]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Change:
    """One place of a table, or of a database, that differs. ``source``, ``target``: its text there, "" without one."""

    table: str
    place: str
    source: str
    target: str

    @property
    def is_only_named(self) -> bool:
        """Whether it is no table's: a view, a trigger, a routine or an event. These count as no difference."""
        return self.place.partition(" ")[0] in _ONLY_NAMED


@dataclass(frozen=True, slots=True)
class Words:
    """How a server of this flavour writes a definition. ``is_mixed``: the other side has the other flavour."""

    flavour: Flavour
    is_mixed: bool

    def type_text(self, type_text: str, collation: str) -> str:
        """A column's type and collation."""
        base = type_text.lower()
        if "zerofill" not in base:
            base = _WIDTH.sub("", base)
        if base.startswith("geomcollection"):
            base = "geometrycollection"
        if base == "json" and self.is_mixed:
            return "longtext utf8mb4_bin"
        return f"{_type_of(type_text, base)} {same_collation(collation)}".rstrip()

    def default(self, value: str | None, *, base: str, extra: str, is_nullable: bool) -> str:
        """A column's default; "" without one."""
        if value is None or (self.flavour is Flavour.MARIADB and value == "NULL"):
            return "DEFAULT NULL" if is_nullable else ""
        if self.is_mixed and base in _BYTES:
            return "DEFAULT (bytes)"
        if (moment := _NOW.fullmatch(value)) and ("DEFAULT_GENERATED" in extra or self._quotes):
            return f"DEFAULT {_moment(moment)}"
        if not self._quotes:
            if "DEFAULT_GENERATED" in extra:
                return f"DEFAULT {self.expression(value)}"
            return f"DEFAULT {_as_literal(value)}"
        if value.startswith("'") and value.endswith("'"):
            return f"DEFAULT {_as_literal(_unquoted(value))}"
        if _NUMBER.fullmatch(value) or value.startswith("b'"):
            return f"DEFAULT {_as_literal(value)}"
        return f"DEFAULT {self.expression(value)}"

    @property
    def _quotes(self) -> bool:
        """Whether a default that is a text has quotes."""
        return self.flavour is Flavour.MARIADB

    def extras(self, extra: str, expression: str) -> str:
        """The words that follow the default of a column."""
        lower = extra.lower().replace("persistent", "stored generated")
        parts = []
        if "auto_increment" in lower:
            parts.append("AUTO_INCREMENT")
        if "on update" in lower:
            moment = _NOW.search(lower.partition("on update")[2])
            parts.append(f"ON UPDATE {_moment(moment) if moment else ''}")
        if expression:
            kind = "STORED" if "stored" in lower else "VIRTUAL" if "virtual" in lower else "PERIOD"
            parts.append(f"{kind} AS {self.expression(expression)}")
        parts += [
            word.upper() for word in ("invisible", "without system versioning") if word in lower
        ]
        return " ".join(parts)

    def expression(self, text: str) -> str:
        """An expression, as this flavour prints it."""
        return AN_EXPRESSION if self.is_mixed else f"({text})"

    def plain(self, text: str) -> str:
        """An expression of a partition, which both flavours print alike but for quotes, blanks and case."""
        return re.sub(r"[`\s]", "", text).lower() if self.is_mixed else text


def same_collation(name: str) -> str:
    """One name for collations that are the same."""
    found = _UCA.sub(r"utf8mb4_uca1400_nopad_\1", _UTF8.sub("utf8mb3", name.lower()))
    return "utf8mb4_nopad_bin" if found == "utf8mb4_0900_bin" else found


def _type_of(written: str, lower: str) -> str:
    """The type; the labels of ENUM and SET keep their case."""
    return written if lower.startswith(("enum(", "set(")) else lower


def _moment(found: re.Match[str]) -> str:
    digits = found.group(1) or ""
    return f"CURRENT_TIMESTAMP({digits})" if digits not in ("", "0") else "CURRENT_TIMESTAMP"


def _unquoted(text: str) -> str:
    escapes = {"0": "\0", "n": "\n", "r": "\r", "t": "\t", "Z": "\x1a"}
    return _ESCAPED.sub(
        lambda found: escapes.get(found.group(1), found.group(1)) if found.group(1) else "'",
        text[1:-1],
    )


def _as_literal(text: str) -> str:
    return text if text.startswith("b'") else f"'{text}'"


def differences(
    source: Definition, target: Definition, columns: Collection[str]
) -> Iterable[tuple[str, str, str]]:
    """The places of two definitions that differ: (place, source, target). Names are compared without case.

    ``columns``: those of the source, in their order, that both have.
    """
    here = {place.lower(): (place, text) for place, text in source.items()}
    there = {place.lower(): (place, text) for place, text in target.items()}
    for folded in dict.fromkeys((*here, *there)):
        (place, one), (other_place, other) = (each.get(folded, ("", "")) for each in (here, there))
        if one != other:
            yield place or other_place, one, other
    common = {name.lower() for name in columns}
    orders = [
        [name.lower() for name in _columns(each) if name.lower() in common]
        for each in (source, target)
    ]
    if orders[0] != orders[1]:
        yield "column order", ", ".join(orders[0]), ", ".join(orders[1])


def changes_of_databases(
    source: Definitions,
    target: Definitions,
    fold: Callable[[str], str],
    admits: Callable[[str, str], bool],
) -> list[Change]:
    """The default collations that differ, and the objects that only one side shows and ``admits`` takes.

    ``fold``: a database's name as the target stores it.
    """
    found = []
    for name, collation in sorted(source.databases.items()):
        other = target.databases.get(fold(name), "")
        if other and other != collation:
            found.append(Change(name, "collation", collation, other))
        both = [
            {label.lower(): label for label, table in each.items() if admits(name, table)}
            for each in (source.objects.get(name, {}), target.objects.get(fold(name), {}))
        ]
        for label in sorted(both[0].keys() ^ both[1].keys()):
            texts = ("exists" if label in each else "" for each in both)
            found.append(Change(name, both[0].get(label) or both[1][label], *texts))
    return found


def _columns(definition: Definition) -> list[str]:
    """The names of the columns in their order."""
    return [place.removeprefix("column ") for place in definition if place.startswith("column ")]


def read_definitions(
    session: MySqlSession, inventory: Inventory, databases: Collection[str], *, is_mixed: bool
) -> Definitions:
    """The definitions of all tables of these databases, and what else they have. ``is_mixed``: see ``Words``."""
    reader = _Reader(session, Words(session.flavour, is_mixed), inventory)
    for database in sorted(databases):
        reader.read_columns(database)
        reader.read_kinds(database)
        reader.read_keys(database)
        reader.read_checks(database)
        reader.read_partitions(database)
    for foreign in inventory.foreign_keys:
        if foreign.child[0] in databases:
            reader.tables[foreign.child][f"foreign key {foreign.name}"] = _foreign_key(foreign)
    return Definitions(reader.tables, *_read_databases(session, databases))


@dataclass(frozen=True, slots=True)
class _Reader:
    """Reads the definitions of one database after the other into ``tables``."""

    session: MySqlSession
    words: Words
    inventory: Inventory
    tables: dict[TableKey, dict[str, str]] = field(default_factory=lambda: defaultdict(dict))

    def read_columns(self, database: str) -> None:
        srid = (
            "SRS_ID" if self.words.flavour is Flavour.MYSQL and not self.words.is_mixed else "NULL"
        )
        for row in self.session.query(
            "SELECT TABLE_NAME, COLUMN_NAME, COLUMN_TYPE, DATA_TYPE, COALESCE(COLLATION_NAME, ''), IS_NULLABLE,"
            f" COLUMN_DEFAULT, EXTRA, COALESCE(GENERATION_EXPRESSION, ''), {srid}"
            " FROM information_schema.COLUMNS WHERE TABLE_SCHEMA = %s ORDER BY TABLE_NAME, ORDINAL_POSITION",
            (database,),
        ):
            table, name, type_text, base, collation, nullable = map(text_of, row[:6])
            default, extra = None if row[6] is None else text_of(row[6]), text_of(row[7])
            is_nullable, expression = nullable == "YES", text_of(row[8])
            value = self.words.default(
                default, base=base.lower(), extra=extra, is_nullable=is_nullable
            )
            parts = [
                self.words.type_text(type_text, collation),
                "NULL" if is_nullable else "NOT NULL",
                "" if expression else value,
                self.words.extras(extra, expression),
                "" if row[9] is None else f"SRID {text_of(row[9])}",
            ]
            text = " ".join(filter(None, parts))
            self.tables[database, table][f"column {name}"] = text

    def read_kinds(self, database: str) -> None:
        for row in self.session.query(
            "SELECT TABLE_NAME, TABLE_TYPE, ENGINE, COALESCE(TABLE_COLLATION, '')"
            " FROM information_schema.TABLES WHERE TABLE_SCHEMA = %s AND TABLE_TYPE <> 'VIEW'",
            (database,),
        ):
            table, kind, engine, collation = map(text_of, row)
            if (places := self.tables.get((database, table))) is not None:
                places |= {"kind": kind, "engine": engine, "collation": same_collation(collation)}

    def read_keys(self, database: str) -> None:
        is_mysql = self.words.flavour is Flavour.MYSQL
        expression, ignored = "EXPRESSION", "IS_VISIBLE"
        if not is_mysql:  # which may ignore an index since 10.6
            expression, ignored = "NULL", "IGNORED" if self.session.query(_HAS_IGNORED) else "'NO'"
        found: dict[TableKey, dict[str, tuple[str, str, list[str]]]] = {}
        for row in self.session.query(
            "SELECT TABLE_NAME, INDEX_NAME, NON_UNIQUE, INDEX_TYPE, COLUMN_NAME, COLLATION, SUB_PART,"
            f" {expression}, {ignored} FROM information_schema.STATISTICS WHERE TABLE_SCHEMA = %s"
            " ORDER BY TABLE_NAME, INDEX_NAME, SEQ_IN_INDEX",
            (database,),
        ):
            table, name, is_loose, kind = map(text_of, row[:4])
            part = self.words.expression(text_of(row[7])) if row[4] is None else text_of(row[4])
            if row[6] is not None and kind != "SPATIAL":
                part += f"({text_of(row[6])})"
            if row[5] is not None and text_of(row[5]) == "D":
                part += " DESC"
            unique = "" if is_loose == "1" else "UNIQUE "
            special = "" if kind in _PLAIN_INDEXES else f"{kind} "
            hidden = " IGNORED" if text_of(row[8]) == ("NO" if is_mysql else "YES") else ""
            keys = found.setdefault((database, table), {})
            keys.setdefault(name, (f"{unique}{special}KEY", hidden, []))[2].append(part.lower())
        for place, keys in found.items():
            known = self.inventory.tables.get(place)
            periods = {key.name for key in known.unique_keys if key.has_period} if known else set()
            for name, (kind, hidden, parts) in keys.items():
                overlaps = " WITHOUT OVERLAPS" if name in periods else ""
                self.tables[place][f"key {name}"] = f"{kind} ({', '.join(parts)}){overlaps}{hidden}"

    def read_checks(self, database: str) -> None:
        if self.words.flavour is Flavour.MYSQL:
            sql = (
                "SELECT t.TABLE_NAME, c.CONSTRAINT_NAME, c.CHECK_CLAUSE FROM information_schema.CHECK_CONSTRAINTS c"
                " JOIN information_schema.TABLE_CONSTRAINTS t USING (CONSTRAINT_SCHEMA, CONSTRAINT_NAME)"
                " WHERE c.CONSTRAINT_SCHEMA = %s AND t.CONSTRAINT_TYPE = 'CHECK'"
            )
        else:
            sql = (
                "SELECT TABLE_NAME, CONSTRAINT_NAME, CHECK_CLAUSE FROM information_schema.CHECK_CONSTRAINTS"
                " WHERE CONSTRAINT_SCHEMA = %s"
            )
        counts: Counter[TableKey] = Counter()
        for row in self.session.query(sql, (database,)):
            table, name, clause = map(text_of, row)
            if not self.words.is_mixed:
                self.tables[database, table][f"check {name}"] = f"({clause})"
            elif "json_valid(" not in clause.lower():
                counts[database, table] += 1
        for place, count in counts.items():
            self.tables[place]["checks"] = str(count)

    def read_partitions(self, database: str) -> None:
        found: dict[TableKey, dict[str, tuple[str, list[str]]]] = {}
        for row in self.session.query(
            "SELECT TABLE_NAME, PARTITION_NAME, SUBPARTITION_NAME, PARTITION_METHOD, SUBPARTITION_METHOD,"
            " PARTITION_EXPRESSION, SUBPARTITION_EXPRESSION, PARTITION_DESCRIPTION FROM information_schema.PARTITIONS"
            " WHERE TABLE_SCHEMA = %s AND PARTITION_NAME IS NOT NULL"
            " ORDER BY TABLE_NAME, PARTITION_ORDINAL_POSITION, SUBPARTITION_ORDINAL_POSITION",
            (database,),
        ):
            table, name, sub, method, sub_method, by, sub_by, values = (
                "" if value is None else text_of(value) for value in row
            )
            text = f"BY {method} ({self.words.plain(by)})"
            if sub_method:
                text += f" SUBPARTITION BY {sub_method} ({self.words.plain(sub_by)})"
            self.tables[database, table]["partitioning"] = text
            if method != "SYSTEM_TIME":  # the server adds these as the history grows
                parts = found.setdefault((database, table), {})
                parts.setdefault(name, (self.words.plain(values), []))[1].append(sub)
        for place, partitions in found.items():
            for name, (values, subs) in partitions.items():
                shown = f"values {values}" if values else "any values"
                named = f", subpartitions {', '.join(subs)}" if any(subs) else ""
                self.tables[place][f"partition {name}"] = shown + named


_HAS_IGNORED = (
    "SELECT 1 FROM information_schema.COLUMNS WHERE TABLE_SCHEMA = 'information_schema'"
    " AND TABLE_NAME = 'STATISTICS' AND COLUMN_NAME = 'IGNORED'"
)


def _foreign_key(foreign: ForeignKey) -> str:
    """Names are compared without case: a server may store them in lower case."""
    parent = ".".join(foreign.parent)
    text = (
        f"({', '.join(foreign.columns)}) REFERENCES {parent} ({', '.join(foreign.parent_columns)})"
    )
    for event, action in (
        ("DELETE", foreign.actions.on_delete),
        ("UPDATE", foreign.actions.on_update),
    ):
        text += "" if action is Action.NO_ACTION else f" ON {event} {action}"
    return text.lower()


def _read_databases(
    session: MySqlSession, databases: Collection[str]
) -> tuple[dict[str, str], dict[str, dict[str, str]]]:
    collations = {
        text_of(name): same_collation(text_of(collation))
        for name, collation in session.query(
            "SELECT SCHEMA_NAME, DEFAULT_COLLATION_NAME FROM information_schema.SCHEMATA"
        )
        if text_of(name) in databases
    }
    objects = {
        database: {
            f"{text_of(kind).lower()} {text_of(name)}": text_of(of)
            for kind, name, of in session.query(_OBJECTS_SQL, (database,) * 4)
        }
        for database in databases
    }
    return collations, objects


_OBJECTS_SQL = """
SELECT 'view', TABLE_NAME, TABLE_NAME FROM information_schema.TABLES WHERE TABLE_SCHEMA = %s AND TABLE_TYPE = 'VIEW'
UNION ALL SELECT 'trigger', TRIGGER_NAME, EVENT_OBJECT_TABLE FROM information_schema.TRIGGERS WHERE TRIGGER_SCHEMA = %s
UNION ALL SELECT ROUTINE_TYPE, ROUTINE_NAME, '' FROM information_schema.ROUTINES
    WHERE ROUTINE_SCHEMA = %s AND ROUTINE_TYPE IN ('FUNCTION', 'PROCEDURE')
UNION ALL SELECT 'event', EVENT_NAME, '' FROM information_schema.EVENTS WHERE EVENT_SCHEMA = %s
"""
