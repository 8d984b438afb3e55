"""Whether a DDL statement was executed, from states of one server or of two."""

import pytest

from millrace.consumer.write.ddl_outcome import DONE, EXECUTE, UNDECIDED, State, decide
from millrace.schemas.sql.statement import classify

T = """CREATE TABLE `t` (
  `id` int NOT NULL,
  `c` int DEFAULT NULL,
  PRIMARY KEY (`id`),
  KEY `k` (`c`),
  CONSTRAINT `f` FOREIGN KEY (`c`) REFERENCES `p` (`id`)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4
/*!50100 PARTITION BY RANGE (`id`)
(PARTITION p0 VALUES LESS THAN (9) ENGINE = InnoDB,
 PARTITION p1 VALUES LESS THAN (99) ENGINE = InnoDB) */"""
U = "CREATE TABLE `u` (\n  `id` int\n) ENGINE=InnoDB"


def changed(*pairs: tuple[str, str]) -> str:
    """The table's definition with texts replaced."""
    text = T
    for old, new in pairs:
        assert old in text
        text = text.replace(old, new)
    return text


ADDED = ("  PRIMARY", "  `x` int,\n  PRIMARY")
# statement, the definition of `t` after it (None: as before), the decision on another server while the definition is as
# before, and after it
CASES = {
    "ALTER TABLE t ADD COLUMN x INT": (changed(ADDED), EXECUTE, DONE),
    "ALTER TABLE t ADD (x INT, y INT)": (
        changed(("  PRIMARY", "  `x` int,\n  `y` int,\n  PRIMARY")),
        EXECUTE,
        DONE,
    ),
    "ALTER TABLE t ADD x INT, MODIFY c BIGINT, COMMENT 'n'": (
        changed(ADDED, ("`c` int", "`c` bigint"), ("utf8mb4\n", "utf8mb4 COMMENT='n'\n")),
        EXECUTE,
        DONE,
    ),
    "ALTER TABLE t DROP c, DROP KEY k, DROP FOREIGN KEY f": (
        changed(
            ("  `c` int DEFAULT NULL,\n", ""),
            ("(`id`),\n  KEY `k` (`c`),\n", "(`id`)\n"),
            ("  CONSTRAINT `f` FOREIGN KEY (`c`) REFERENCES `p` (`id`)\n", ""),
        ),
        EXECUTE,
        DONE,
    ),
    "ALTER TABLE t ADD INDEX (c)": (
        changed(("  KEY `k`", "  KEY `c` (`c`),\n  KEY `k`")),
        EXECUTE,
        DONE,
    ),
    "ALTER TABLE t ADD UNIQUE KEY z (c)": (
        changed(("  KEY `k`", "  UNIQUE KEY `z` (`c`),\n  KEY `k`")),
        EXECUTE,
        DONE,
    ),
    "CREATE INDEX z ON t (c)": (
        changed(("  KEY `k`", "  KEY `z` (`c`),\n  KEY `k`")),
        EXECUTE,
        DONE,
    ),
    "DROP INDEX k ON t": (changed(("  KEY `k` (`c`),\n", "")), EXECUTE, DONE),
    "ALTER TABLE t DROP PRIMARY KEY": (changed(("  PRIMARY KEY (`id`),\n", "")), EXECUTE, DONE),
    "ALTER TABLE t CHANGE c d INT": (
        changed(("`c` int", "`d` int"), ("(`c`)", "(`d`)")),
        EXECUTE,
        DONE,
    ),
    "ALTER TABLE t RENAME INDEX k TO l": (changed(("KEY `k`", "KEY `l`")), EXECUTE, DONE),
    "ALTER TABLE t ADD PARTITION (PARTITION p2 VALUES LESS THAN (999))": (
        changed(
            (
                "(99) ENGINE = InnoDB)",
                "(99) ENGINE = InnoDB,\n PARTITION p2 VALUES LESS THAN (999) ENGINE = InnoDB)",
            )
        ),
        EXECUTE,
        DONE,
    ),
    "ALTER TABLE t DROP PARTITION p1": (
        changed(("InnoDB,\n PARTITION p1 VALUES LESS THAN (99) ENGINE = InnoDB)", "InnoDB)")),
        EXECUTE,
        DONE,
    ),
    # the same effect if they are executed twice
    "ALTER TABLE t MODIFY c BIGINT": (changed(("`c` int", "`c` bigint")), EXECUTE, EXECUTE),
    "ALTER TABLE t CHANGE c c BIGINT": (changed(("`c` int", "`c` bigint")), EXECUTE, EXECUTE),
    "ALTER TABLE t ENGINE=InnoDB": (None, EXECUTE, EXECUTE),
    "ALTER TABLE t CONVERT TO CHARSET latin1": (
        changed(("utf8mb4", "latin1")),
        EXECUTE,
        EXECUTE,
    ),
    "ALTER TABLE t ADD COLUMN IF NOT EXISTS x INT": (changed(ADDED), EXECUTE, EXECUTE),
    "ALTER TABLE t ALTER c SET DEFAULT 3": (changed(("NULL,\n  P", "3,\n  P")), EXECUTE, EXECUTE),
    # not shown by the definition
    "ALTER TABLE t DROP INDEX k, ADD INDEX k (c)": (None, UNDECIDED, UNDECIDED),
    "ALTER TABLE t COALESCE PARTITION 1": (None, UNDECIDED, UNDECIDED),
    "ALTER TABLE t DISCARD TABLESPACE": (None, UNDECIDED, UNDECIDED),
}


def _decide(
    sql: str,
    before: dict[str, str],
    now: dict[str, str],
    *,
    is_same: bool = False,
    is_empty: bool = False,
) -> str:
    """The decision for states whose ids the server has changed meanwhile."""
    was = {
        name: text and f"{text}\n-- d/{name}=5{place}"
        for place, (name, text) in enumerate(before.items())
    }
    is_ = {
        name: text and f"{text}\n-- d/{name}=7{place}"
        for place, (name, text) in enumerate(now.items())
    }
    servers = ("a", "a" if is_same else "b")
    return decide(State(servers[0], was), State(servers[1], is_, is_empty), classify(sql, "d"), sql)


@pytest.mark.parametrize("sql", CASES)
def test_definitions_decide_on_another_server(sql: str) -> None:
    """As before or after the statement; another change of the table is not taken for the statement."""
    after, if_before, if_after = CASES[sql]
    assert _decide(sql, {"d.t": T}, {"d.t": T}) == if_before
    assert _decide(sql, {"d.t": T}, {"d.t": after or T}) == if_after
    other = T.replace("  `id` int NOT NULL,", "  `id` int NOT NULL,\n  `other` int,")
    assert _decide(sql, {"d.t": T}, {"d.t": other}) != DONE
    assert _decide(sql, {"d.t": T}, {"d.t": ""}) != DONE


@pytest.mark.parametrize("sql", CASES)
def test_other_sessions_rebuild_is_not_an_execution(sql: str) -> None:
    """OPTIMIZE TABLE gives the table new ids on the same server; only a rebuild is done with it."""
    after, if_before, _ = CASES[sql]
    rebuilds = sql.endswith("ENGINE=InnoDB")
    assert _decide(sql, {"d.t": T}, {"d.t": T}, is_same=True) == (DONE if rebuilds else if_before)
    if after:
        assert _decide(sql, {"d.t": T}, {"d.t": after}, is_same=True) == DONE


def test_unchanged_state_of_one_server_means_not_executed() -> None:
    """Also for statements that definitions do not decide."""
    for sql in CASES:
        state = State("a", {"d.t": f"{T}\n-- d/t=5"})
        assert decide(state, state, classify(sql, "d"), sql) == EXECUTE


@pytest.mark.parametrize("is_same", [True, False])
def test_presence_decides_about_names(*, is_same: bool) -> None:
    """Tables that a statement creates, drops or renames; a half executed one is for the operator."""
    t, u, gone = {"d.t": T}, {"d.u": U}, {"d.t": ""}
    for sql, before, wanted in (
        ("CREATE TABLE t (id INT)", gone, t),
        ("DROP TABLE t", t, gone),
        ("RENAME TABLE t TO u", {**t, "d.u": ""}, {**gone, "d.u": T}),
        ("ALTER TABLE t RENAME TO u, COMMENT 'x'", {**t, "d.u": ""}, {**gone, "d.u": T}),
    ):
        assert _decide(sql, before, before, is_same=is_same) == EXECUTE
        assert _decide(sql, before, wanted, is_same=is_same) == DONE
    both = {**t, **u}
    assert _decide("DROP TABLE t, u", both, {**gone, **u}, is_same=is_same) == UNDECIDED
    if_there = "CREATE TABLE IF NOT EXISTS t (id INT)"
    assert _decide(if_there, t, t, is_same=is_same) == EXECUTE


@pytest.mark.parametrize("is_same", [True, False])
def test_rows_decide_about_truncate(*, is_same: bool) -> None:
    """New ids alone are no sign of it."""
    for sql in ("TRUNCATE TABLE t", "ALTER TABLE t TRUNCATE PARTITION p1"):
        assert _decide(sql, {"d.t": T}, {"d.t": T}, is_same=is_same) == EXECUTE
        assert _decide(sql, {"d.t": T}, {"d.t": T}, is_same=is_same, is_empty=True) == DONE


def test_swapped_tables_are_recognized_where_they_differ() -> None:
    """By ids on one server, else by different definitions."""
    sql, exchange = (
        "RENAME TABLE t TO x, u TO t, x TO u",
        "ALTER TABLE t EXCHANGE PARTITION p0 WITH TABLE u",
    )
    for text in (T, U):
        before = {"d.t": f"{T}\n-- d/t=1", "d.x": "", "d.u": f"{text}\n-- d/u=2"}
        after = {"d.t": f"{text}\n-- d/t=2", "d.x": "", "d.u": f"{T}\n-- d/u=1"}
        statement = classify(sql, "d")
        assert decide(State("a", before), State("a", after), statement, sql) == DONE
        for now, wanted in ((before, EXECUTE), (after, DONE)):
            other = {
                name: state.replace("=1", "=91").replace("=2", "=92") for name, state in now.items()
            }
            if text is T:
                wanted = UNDECIDED
            assert decide(State("a", before), State("b", other), statement, sql) == wanted
    was = {"d.t": f"{T}\n-- d/t#p0=1, d/t#p1=3", "d.u": f"{U}\n-- d/u=2"}
    moved = {"d.t": f"{T}\n-- d/t#p0=2, d/t#p1=3", "d.u": f"{U}\n-- d/u=1"}
    statement = classify(exchange, "d")
    assert decide(State("a", was), State("a", moved), statement, exchange) == DONE
    assert decide(State("a", was), State("b", moved), statement, exchange) == UNDECIDED
    assert decide(State("a", was), State("b", was), statement, exchange) == UNDECIDED


def test_intent_of_an_unknown_server_is_judged_by_definitions() -> None:
    """An earlier version of Millrace did not store the server."""
    sql = "ALTER TABLE t ADD x INT"
    was, now = {"d.t": f"{T}\n-- d/t=1"}, {"d.t": f"{T}\n-- d/t=2"}
    assert decide(State("", was), State("", now), classify(sql, "d"), sql) == EXECUTE


@pytest.mark.parametrize("wait", ["WAIT 5", "NOWAIT"])
def test_wait_before_the_clauses_changes_no_decision(wait: str) -> None:
    """MariaDB: it is no clause. An executed EXCHANGE must not be executed again."""
    for sql, (after, if_before, if_after) in CASES.items():
        if sql.startswith("ALTER TABLE t "):
            waiting = sql.replace(" t ", f" t {wait} ", 1)
            assert _decide(waiting, {"d.t": T}, {"d.t": T}) == if_before
            assert _decide(waiting, {"d.t": T}, {"d.t": after or T}) == if_after
    exchange = f"ALTER TABLE t {wait} EXCHANGE PARTITION p0 WITH TABLE u"
    was = {"d.t": f"{T}\n-- d/t#p0=1", "d.u": f"{U}\n-- d/u=2"}
    moved = {"d.t": f"{T}\n-- d/t#p0=2", "d.u": f"{U}\n-- d/u=1"}
    statement = classify(exchange, "d")
    assert decide(State("a", was), State("a", moved), statement, exchange) == DONE
    rename = f"ALTER TABLE t {wait} RENAME TO u"
    assert _decide(rename, {"d.t": T, "d.u": ""}, {"d.t": "", "d.u": T}) == DONE


def test_reorganized_partition_may_keep_its_name() -> None:
    """A list of partitions has all its names, and one that is dropped and added shows nothing."""
    merged = changed(
        ("p0 VALUES LESS THAN (9) ENGINE = InnoDB,\n PARTITION p1", "p0"),
    )
    two = "ALTER TABLE t REORGANIZE PARTITION p0, p1 INTO (PARTITION {} VALUES LESS THAN (99))"
    keeps = two.format("p0")
    assert _decide(keeps, {"d.t": T}, {"d.t": T}) == UNDECIDED
    assert _decide(keeps, {"d.t": T}, {"d.t": merged}) == UNDECIDED
    assert _decide(keeps, {"d.t": T}, {"d.t": merged}, is_same=True) == DONE
    renames = two.format("p9")
    assert _decide(renames, {"d.t": T}, {"d.t": T}) == EXECUTE
    assert _decide(renames, {"d.t": T}, {"d.t": merged.replace("N p0", "N p9")}) == DONE
    drops = "ALTER TABLE t DROP PARTITION p0, p1"
    assert _decide(drops, {"d.t": T}, {"d.t": merged}) == UNDECIDED


def test_function_if_is_no_if_exists() -> None:
    """A CHECK that begins with IF() is added by each execution; IF EXISTS has an effect once."""
    check = "ALTER TABLE t ADD CHECK (IF(c > 0, 1, 0))"
    after = changed(
        (
            "REFERENCES `p` (`id`)",
            "REFERENCES `p` (`id`),\n  CONSTRAINT `t_chk_1` CHECK (if((`c` > 0),1,0))",
        )
    )
    assert _decide(check, {"d.t": T}, {"d.t": T}) == EXECUTE
    assert _decide(check, {"d.t": T}, {"d.t": after}) == DONE
    renamed = changed(("KEY `k`", "KEY `l`"))
    for sql in (
        "ALTER TABLE t RENAME INDEX IF EXISTS k TO l",
        "ALTER TABLE t RENAME KEY IF EXISTS k TO l",
    ):
        for now in (T, renamed):
            assert _decide(sql, {"d.t": T}, {"d.t": now}) == EXECUTE
