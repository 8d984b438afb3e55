"""The effects of logged statements on a view: statements with all clauses of ALTER TABLE that the parser knows."""

import pytest

from millrace.consumer.view.ddl import check_statement
from millrace.errors import Fatal
from millrace.schemas.gtid import Flavour
from millrace.schemas.record.control import (
    DdlRecord,
    DdlStatement,
    EventPlace,
    Origin,
    RecordSource,
    RecordTransaction,
)
from millrace.schemas.sql.alter_clauses import OPTIONS
from millrace.schemas.sql.statement import classify
from millrace.schemas.table.structure import Column, ColumnType, TableSchema, TextEncoding, TypeCode
from millrace.schemas.view.ddl import DdlEffect, effect_of
from millrace.schemas.view.view import Mask, MaskKind, TableRule, View

UTF8 = TextEncoding("utf8mb4", 46)
TEXT = ColumnType(TypeCode.VARCHAR, 160, text=UTF8)
COLUMNS = (
    Column("id", ColumnType(TypeCode.LONG), nullable=False),
    Column("kind", ColumnType(TypeCode.SHORT, is_unsigned=True), nullable=True),
    Column("mail", TEXT, nullable=True),
    Column("card", TEXT, nullable=True),
    Column("note", TEXT, nullable=True),
    Column("free", TEXT, nullable=True),
)
T = TableSchema("d", "t", COLUMNS, primary_key=(0,))
TABLES = {
    ("d", "t"): T,
    ("d", "plain"): TableSchema("d", "plain", COLUMNS, primary_key=(0,)),
    ("d", "keyless"): TableSchema("d", "keyless", COLUMNS),
    ("d", "out"): TableSchema("d", "out", COLUMNS, primary_key=(0,)),
    ("numbers", "t"): TableSchema("numbers", "t", COLUMNS[:2], primary_key=(0,)),
}
VIEW = View(
    (
        TableRule(
            "d.t",
            where="(`kind` = 1)",
            drop=("note",),
            rename=(("mail", "email"),),
            add=(("shard", 1),),
            masks=(("email", Mask(MaskKind.REDACT)), ("card", Mask(MaskKind.REDACT))),
        ),
        TableRule("d.plain*"),
        TableRule("d.keyless"),
        TableRule("numbers.*", where="(`kind` = 1)"),
        TableRule("d.new_*"),
        TableRule("d.one_*", target="d.one"),
    )
)


def _record(sql: str, kind: str = "", session: dict[str, str] | None = None) -> DdlRecord:
    place = EventPlace(0, 1, "u:1", "f", 4, 0)
    source = RecordSource(Origin(Flavour.MYSQL, "c", "s"), "d", "", place, 0, 7)
    values = {"default_database": "d"} | (session or {})
    statement = DdlStatement(sql, kind or classify(sql, "d").kind, (), values)
    return DdlRecord(source, statement, 0, RecordTransaction("u:1", 1, True))


def _effect(sql: str, kind: str = "", session: dict[str, str] | None = None) -> DdlEffect:
    return effect_of(_record(sql, kind, session), VIEW, TABLES)


# a statement, and the columns or tables that its obstacles name; "*": the whole table
CLAUSES = {
    # columns that the view does not use
    "ADD x INT": "",
    "ADD COLUMN IF NOT EXISTS x INT NOT NULL DEFAULT 5 FIRST": "",
    "ADD (x INT, y VARCHAR(3) DEFAULT ',')": "",
    "ADD x INT PARTITION BY KEY (id) PARTITIONS 4": "",
    "DROP free": "",
    "DROP COLUMN IF EXISTS free": "",
    "MODIFY free BIGINT": "",
    "CHANGE free free BIGINT": "",
    "CHANGE COLUMN free other TEXT": "",
    "RENAME COLUMN free TO other": "",
    "ALTER free SET DEFAULT 'x', ALTER INDEX k INVISIBLE, ALTER CHECK c NOT ENFORCED": "",
    "ALTER COLUMN kind SET DEFAULT 2": "",
    # columns that it drops, keeps or renames: their names alone matter
    "MODIFY note INT": "",
    "DROP note": "note",
    "RENAME COLUMN note TO remark": "note",
    "CHANGE note remark TEXT": "note",
    # columns of the condition, of masks and of the key
    "MODIFY kind VARCHAR(9)": "kind",
    "MODIFY kind SMALLINT": "kind",
    "MODIFY kind INT": "",
    "MODIFY COLUMN `KIND` BIGINT UNSIGNED AFTER id": "",
    "MODIFY kind INT NOT NULL": "kind",
    "MODIFY kind BIGINT AS (id * 2)": "kind",
    "CHANGE kind kind INT UNSIGNED": "",
    "CHANGE kind kinds INT UNSIGNED": "kind",
    "RENAME COLUMN kind TO kinds": "kind",
    "DROP kind": "kind",
    "MODIFY id BIGINT NOT NULL AUTO_INCREMENT": "",
    "MODIFY id BIGINT UNSIGNED NOT NULL": "id",
    "MODIFY id INT FIRST": "",
    "MODIFY mail VARCHAR(200)": "mail",
    "DROP mail, ADD mail TEXT": "mail",
    "RENAME COLUMN card TO old, RENAME COLUMN free TO card": "card",
    "CHANGE card cards VARCHAR(40)": "card",
    # names that only the view has
    "ADD email INT": "email",
    "ADD Shard INT": "Shard",
    "ADD (x INT, shard INT)": "shard",
    "RENAME COLUMN free TO shard": "shard",
    "CHANGE free email INT": "email",
    # columns that would show what the view hides
    "ADD x TEXT AS (CONCAT(card, '!'))": "x",
    "ADD x TEXT DEFAULT (`Note`)": "x",
    "ADD (x INT, y TEXT GENERATED ALWAYS AS (mail) STORED)": "y",
    "MODIFY free TEXT AS (UPPER(card))": "free",
    "CHANGE free other TEXT AS (UPPER(card))": "free",
    "ADD x INT AS (kind * 2), ADD y VARCHAR(40) AFTER card": "",
    "ADD x TEXT DEFAULT card": "x",
    "ADD x TEXT DEFAULT `d`.t.card FIRST": "x",
    "ADD (x INT, y TEXT NOT NULL DEFAULT 'a' || card COMMENT 'note')": "y",
    "ADD x TEXT DEFAULT CASE WHEN 1 THEN card END": "x",
    "MODIFY free TEXT DEFAULT card": "free",
    "ADD x INT DEFAULT 1 COMMENT 'c' AFTER card, ADD y INT FIRST": "",
    "ALTER free SET DEFAULT card": "free",
    "ALTER COLUMN free SET DEFAULT (CONCAT(card, 1))": "free",
    "ALTER COLUMN IF EXISTS free SET DEFAULT 'card'": "",
    "ALTER free DROP DEFAULT, ALTER INDEX card INVISIBLE, ALTER CHECK card ENFORCED": "",
    # keys
    "ADD KEY k (free), ADD INDEX (kind, free), ADD FULLTEXT (mail), ADD UNIQUE u (mail)": "",
    "ADD CONSTRAINT f FOREIGN KEY (kind) REFERENCES p (id), ADD CHECK (id > 0)": "",
    "ADD CONSTRAINT UNIQUE (free), ADD SPATIAL INDEX (free), ADD VECTOR INDEX (free)": "",
    "ADD PERIOD FOR p (a, b), DROP PERIOD FOR p": "",
    "DROP KEY k, DROP INDEX j, DROP FOREIGN KEY f, DROP CONSTRAINT c, DROP CHECK d": "",
    "RENAME INDEX k TO l, RENAME KEY m TO n": "",
    "DROP PRIMARY KEY, ADD PRIMARY KEY (id, kind)": "*",
    "ADD CONSTRAINT p PRIMARY KEY (id)": "*",
    "DROP INDEX `primary`": "*",
    "DROP CONSTRAINT `PRIMARY`": "*",
    "ADD x INT PRIMARY KEY": "*",
    "ADD x INT KEY": "*",
    "ADD x INT UNIQUE KEY": "",
    "ADD (x INT, PRIMARY KEY (x))": "*",
    "ADD SYSTEM VERSIONING": "*",
    "WITH SYSTEM VERSIONING": "*",
    "ENGINE = InnoDB COMMENT 'WITH SYSTEM' WITH SYSTEM VERSIONING": "*",
    "ENGINE = InnoDB COMMENT 'WITH SYSTEM VERSIONING'": "",
    "DROP SYSTEM VERSIONING": "*",
    # the table
    "CONVERT TO CHARACTER SET latin1": "mail card",
    "ORDER BY kind, mail": "",
    "DISABLE KEYS": "",
    "DISCARD TABLESPACE": "",
    "REMOVE PARTITIONING": "",
    "SECONDARY_LOAD": "",
    "PARTITION BY RANGE (id) (PARTITION p0 VALUES LESS THAN (1), PARTITION p1 VALUES LESS THAN (2))": "",
    "ADD PARTITION (PARTITION p2 VALUES LESS THAN (3))": "",
    "REORGANIZE PARTITION p0, p1 INTO (PARTITION p VALUES LESS THAN (2))": "",
    "DROP PARTITION p0, p1": "",
    "COALESCE PARTITION 1": "",
    "TRUNCATE PARTITION p0": "",
    "ANALYZE PARTITION p0, p1": "",
    "CHECK PARTITION p0": "",
    "OPTIMIZE PARTITION p0": "",
    "REBUILD PARTITION p0": "",
    "REPAIR PARTITION p0": "",
    "DISCARD PARTITION p0 TABLESPACE": "",
    "": "",
    # not understood
    "FROBNICATE free": "*",
    "CONVERT free": "*",
    "free INT": "*",
    **{f"{option} = 1": "" for option in sorted(OPTIONS - {"DEFAULT", "CHARACTER"})},
    "DEFAULT CHARACTER SET latin1 COLLATE latin1_bin": "",
    "CHARACTER SET = latin1": "",
}


@pytest.mark.parametrize("clause", CLAUSES)
def test_clause_has_obstacles_where_the_view_depends(clause: str) -> None:
    """Each clause of ALTER TABLE is an obstacle exactly for the columns on which the view depends."""
    effect = _effect(f"ALTER TABLE t {clause}")
    columns = [obstacle.column or "*" for obstacle in effect.obstacles]
    assert list(dict.fromkeys(columns)) == CLAUSES[clause].split()
    assert not effect.enters
    assert effect.passes == (not columns)
    assert all(f"d.t.{name}: " in effect.reason for name in columns if name != "*")


@pytest.mark.parametrize("clause", CLAUSES)
def test_table_outside_the_view_has_no_obstacles(clause: str) -> None:
    """A statement about a table that no rule matches passes."""
    assert _effect(f"ALTER TABLE d.out {clause}") == DdlEffect()


# a statement, the tables that enter, the tables that leave
MOVES = {
    "RENAME TABLE out TO new_1": ("d.new_1", ""),
    "ALTER TABLE `out` RENAME new_1": ("d.new_1", ""),
    "ALTER TABLE `out` ADD x INT, RENAME TO new_1": ("d.new_1", ""),
    "RENAME TABLE plain TO gone": ("", "d.plain"),
    "RENAME TABLE plain TO plain_old, plain_new TO plain": ("", ""),
    "RENAME TABLE plain TO plain_old, ghost TO plain": ("d.plain", ""),
    "RENAME TABLE plain TO gone, ghost TO plain": ("d.plain", "d.plain"),
    "RENAME TABLE t TO swap, plain TO t, swap TO plain": ("d.t d.plain", "d.plain d.t"),
    "RENAME TABLE plain TO x, x TO plain": ("", ""),
    "RENAME TABLE plain TO plain_2": ("d.plain_2", "d.plain"),
    "ALTER TABLE plain RENAME plain_2": ("d.plain_2", "d.plain"),
    "RENAME TABLE plain TO x, plain_2 TO plain, x TO plain_2": (
        "d.plain d.plain_2",
        "d.plain_2 d.plain",
    ),
    "RENAME TABLE one_1 TO one_2": ("", ""),
    "RENAME TABLE plain TO t": ("d.t", "d.plain"),
    "ALTER TABLE plain EXCHANGE PARTITION p WITH TABLE `out`": ("d.plain", ""),
    "ALTER TABLE `out` EXCHANGE PARTITION p WITH TABLE plain": ("d.plain", ""),
    "ALTER TABLE plain CONVERT PARTITION p TO TABLE new_1": ("d.new_1", ""),
    "ALTER TABLE plain CONVERT PARTITION p TO TABLE gone": ("", ""),
    "ALTER TABLE plain CONVERT TABLE keyless TO PARTITION p VALUES LESS THAN (3)": (
        "d.plain",
        "d.keyless",
    ),
    "ALTER TABLE plain IMPORT TABLESPACE": ("d.plain", ""),
    "ALTER TABLE plain IMPORT PARTITION p TABLESPACE": ("d.plain", ""),
    "DROP TABLE plain, `out`": ("", "d.plain"),
    "DROP DATABASE numbers": ("", "numbers.t"),
    "CREATE TABLE plain LIKE `out`": ("", ""),
    "CREATE TABLE new_1 SELECT 1 AS a": ("d.new_1", ""),
    "CREATE TABLE gone SELECT 1 AS a": ("", ""),
    "TRUNCATE TABLE plain": ("", ""),
    "DROP TABLE PLAIN": ("", "d.plain"),
}


@pytest.mark.parametrize("sql", MOVES)
def test_statement_moves_tables_into_and_out_of_view(sql: str) -> None:
    """A table with rows that no record delivered enters; one that is gone leaves."""
    effect = _effect(sql)
    shown = tuple(
        " ".join(".".join(name) for name in part) for part in (effect.enters, effect.leaves)
    )
    assert shown == MOVES[sql]
    assert effect.obstacles == ()
    assert effect.passes == (not effect.enters)


IGNORED = ("ADD UNIQUE (free)", "MODIFY free INT", "ADD x INT UNIQUE", "PARTITION BY HASH (id)")


@pytest.mark.parametrize("clause", IGNORED)
def test_ignored_rows_are_an_obstacle(clause: str) -> None:
    """MariaDB removes rows that do not suit, without a record of them."""
    for verb in ("ALTER IGNORE TABLE plain", "ALTER ONLINE IGNORE TABLE plain"):
        effect = _effect(f"{verb} {clause}")
        assert [obstacle.column for obstacle in effect.obstacles] == [""]
        assert "IGNORE" in effect.reason
    assert _effect(f"ALTER TABLE `ignore` {clause}").passes


CREATED = {
    "CREATE TABLE t (id INT PRIMARY KEY, card TEXT, free TEXT AS (card))": "free",
    "CREATE OR REPLACE TABLE t (id INT, card TEXT DEFAULT 'x', free TEXT DEFAULT card, KEY (card))": "free",
    "CREATE TABLE IF NOT EXISTS t (id INT, card TEXT AS (UPPER(free)), CHECK (card > 0))": "",
    "CREATE TABLE kept_1 (id INT PRIMARY KEY, other INT, kind INT AS (other + 1))": "kind",
    "CREATE TABLE kept_1 (id INT PRIMARY KEY, other INT AS (id), kind INT AS (id + 1))": "",
    "CREATE TABLE plain (id INT PRIMARY KEY, card TEXT, free TEXT AS (card))": "",
    "CREATE TABLE t LIKE plain": "",
}


@pytest.mark.parametrize("sql", CREATED)
def test_new_table_does_not_show_hidden_columns(sql: str) -> None:
    """Its first rows would have the hidden values in another column."""
    kept = View((*VIEW.rules, TableRule("d.kept_*", keep=("id", "kind"))))
    effect = effect_of(_record(sql), kept, TABLES)
    assert [obstacle.column for obstacle in effect.obstacles] == CREATED[sql].split()


def test_rename_leaves_the_obstacles_of_other_clauses() -> None:
    """A statement that also moves the table is judged by the rule of its old name."""
    effect = _effect("ALTER TABLE t DROP card, RENAME TO gone")
    assert [obstacle.column for obstacle in effect.obstacles] == ["card"]
    assert effect.leaves == (("d", "t"),)


@pytest.mark.parametrize(
    "sql", ["CREATE UNIQUE INDEX u ON keyless (id)", "ALTER TABLE keyless ADD x SERIAL"]
)
def test_unique_key_concerns_only_tables_without_key(sql: str) -> None:
    """A unique key may count as the primary key where there is none."""
    assert [obstacle.column for obstacle in _effect(sql).obstacles] == [""]
    assert _effect(sql.replace("keyless", "plain")).passes


def test_dropping_the_index_primary_changes_the_key() -> None:
    """MySQL logs DROP INDEX for the primary key too."""
    assert not _effect("DROP INDEX `PRIMARY` ON plain").passes
    assert _effect("DROP INDEX IF EXISTS k ON plain").passes
    assert _effect("CREATE INDEX k ON plain (free)").passes


def test_conversion_of_texts_passes_without_texts() -> None:
    """A view that depends on numbers alone is not concerned."""
    assert _effect("ALTER TABLE numbers.t CONVERT TO CHARACTER SET latin1").passes


@pytest.mark.parametrize(
    "sql",
    [
        *(
            "CREATE DATABASE e",
            "ALTER DATABASE d CHARACTER SET latin1",
            "CREATE VIEW v AS SELECT 1",
        ),
        *(
            "CREATE TRIGGER g BEFORE INSERT ON t FOR EACH ROW SET @a = 1",
            "GRANT SELECT ON *.* TO u",
        ),
        *(
            "ANALYZE TABLE t",
            "CREATE SEQUENCE s",
            "DROP TEMPORARY TABLE x",
            "CREATE TABLE t2 (a INT)",
        ),
    ],
)
def test_other_statements_pass(sql: str) -> None:
    """They change no row that a view delivers."""
    assert _effect(sql) == DdlEffect()


def test_statement_that_is_not_understood_is_an_obstacle() -> None:
    """Also one that capture did not understand, and a cut text."""
    assert "not understood: FROB TABLE t" in _effect("FROB TABLE t ADD x INT").reason
    assert not _effect("ALTER TABLE t ADD x INT", kind="unknown").passes
    assert not _effect("ALTER TABLE t …").passes
    assert not _effect("INSERT INTO t VALUES (1)").passes


def test_gap_in_the_topic_is_an_obstacle() -> None:
    """Rows that an operator left out of the set topic are missing in the view, too."""
    session = {"decision": "x", "gap": "skip-gtid", "missing": "u:7", "reason": "lost"}
    assert "u:7 is missing" in _effect("-- millrace gap", kind="gap", session=session).reason


def test_column_that_is_not_kept_may_use_hidden_ones() -> None:
    """A view that names its columns does not deliver a new one."""
    rule = TableRule("d.t", keep=("id", "free"))
    add = _record("ALTER TABLE t ADD x TEXT AS (UPPER(card))")
    assert effect_of(add, View((rule,)), TABLES).passes
    modify = _record("ALTER TABLE t MODIFY free TEXT AS (UPPER(card))")
    assert not effect_of(modify, View((rule,)), TABLES).passes


def test_statement_that_needs_a_decision_stops_the_task() -> None:
    """The error has its seq, the columns and the reasons; the operator accepts it by its seq."""
    record = _record("ALTER TABLE t DROP card, MODIFY kind TEXT")
    with pytest.raises(Fatal) as refusal:
        check_statement(record, VIEW, tables=TABLES, accepted=(6, 8))
    assert refusal.value.code == "MR-5204"
    assert refusal.value.message == (
        "the statement at seq 7 needs a decision: d.t.card: mask names it;"
        " d.t.kind: where uses it, and its values may change"
    )
    assert "--tables d.t`" in refusal.value.fix
    check_statement(record, VIEW, tables=TABLES, accepted=(7,))
    check_statement(_record("ALTER TABLE t ADD x INT"), VIEW, tables=TABLES, accepted=())


def test_ansi_quotes_are_read_by_the_sql_mode() -> None:
    """The record has the session's mode; without it, "card" is a text."""
    sql, mode = 'ALTER TABLE t DROP "card"', {"sql_mode": "ANSI_QUOTES,STRICT_TRANS_TABLES"}
    assert [obstacle.column for obstacle in _effect(sql, session=mode).obstacles] == ["card"]
