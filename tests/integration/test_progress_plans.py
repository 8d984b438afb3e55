"""The servers explain every statement about Millrace's own tables on the target, which have rows of 1,000 tasks.

The statements are those that the modules of ``consumer`` contain, so a new one is explained, too.
"""

import ast
import re
from collections.abc import Iterator
from contextlib import closing
from importlib import import_module

import pytest

from millrace.consumer.compare import repair, stored
from millrace.consumer.target.progress import DATABASE, create_tables
from millrace.deploy.servers import DatabaseServer
from millrace.drivers.mysql.connection import MySqlSession, connect
from tests.kit.apply.local import endpoint_of
from tests.kit.apply.plans import explained
from tests.kit.paths import ROOT

pytestmark = pytest.mark.both_flavours

TASKS, ROWS_OF_A_TASK = 1_000, 10
ONE_TASK = "plan7"
READ_MAX = 3 * ROWS_OF_A_TASK  # rows of one table; the servers estimate
_TABLE = rf"(?:{DATABASE}|\{{\}})\.\w+"
_STATEMENT = re.compile(
    rf"\s*(?:SELECT\b.* FROM|UPDATE|DELETE FROM|INSERT INTO .*\bSELECT\b.* FROM|UPDATE IGNORE) {_TABLE}",
    re.DOTALL,
)
_COMPARED = re.compile(r"(\w+) (?:=|<>|<|>|<=|>=|IN|:=) (%s)")
# who writes a table of the target is asked of all tasks, once for a table; here all of them merge into one
OF_ALL_TASKS = re.compile(
    rf"SELECT task FROM {DATABASE}\.progress( UNION .*)?$"
    rf"|SELECT (target_database|target_table|task, source_database)\b.* FROM {DATABASE}\.merged_table "
)
# what a statement has in the place of a local variable
_LOCALS = {
    "lock": " FOR UPDATE",
    "earlier": " AND run < %s",
    "names": ["seq", "lag_ms"],
    "sets": "decision = %s, own_sql = %s",
    "state": "load_table",
    "table": "conflict",
    "columns": "database_name, table_name",
    "column": "reason",
    "_share": lambda _: "FOR UPDATE",
    "connection": None,
}


def statements() -> Iterator[str]:
    """Every statement in the code that looks for rows of these tables, with its %s."""
    folder = ROOT / "consumer"
    for path in sorted(folder.rglob("*.py")):
        place = path.relative_to(folder.parent).with_suffix("")
        module = import_module(".".join(("millrace", *place.parts)))
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.JoinedStr | ast.Constant):
                text = _text(node, vars(module))
                if _STATEMENT.match(text) and " on the target" not in text:
                    yield text.replace("{}", DATABASE).replace("{structure}", "structure")


def _text(node: ast.JoinedStr | ast.Constant, names: dict[str, object]) -> str:
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) and "{}." in node.value else ""
    shown = ast.unparse(node)
    if "{DATABASE}" not in shown or not re.match(
        r"f['\"]\s*(?:SELECT|UPDATE|DELETE|INSERT.*SELECT)\b", shown
    ):
        return ""
    code = compile(ast.Expression(node), "statement", "eval")
    return str(eval(code, {**names, **_LOCALS}))


def filled(sql: str, texts: set[str]) -> str:
    """The statement with a value for each %s. ``texts``: the names of the columns that are no numbers."""

    def value(found: re.Match[str]) -> str:
        column = found[1]
        one = f"'{ONE_TASK}'" if column == "task" else "'x3'" if column in texts else "73"
        return found[0].replace("%s", f"({one}, {one})" if " IN " in found[0] else one)

    return _COMPARED.sub(value, sql).replace("_binary %s", "_binary 'x3'").replace("%s", "5")


@pytest.fixture
def session(server: DatabaseServer) -> Iterator[MySqlSession]:
    """A session on a server whose tables have rows of many tasks."""
    with closing(connect(endpoint_of(server))) as made:
        create_tables(made)
        for table in (*stored.TABLES, repair.TABLE):
            made.query(f"CREATE TABLE IF NOT EXISTS {DATABASE}.{table} ENGINE=InnoDB")
        made.query("CREATE DATABASE progress_plans")
        made.query("CREATE TABLE progress_plans.number (n INT PRIMARY KEY)")
        numbers = ", ".join(f"({n})" for n in range(TASKS * ROWS_OF_A_TASK))
        made.query(f"INSERT INTO progress_plans.number VALUES {numbers}")
        tables = [str(name) for (name,) in made.query(f"SHOW TABLES FROM {DATABASE}")]
        for table in tables:
            _fill(made, table)
        made.commit()
        made.query("ANALYZE TABLE " + ", ".join(f"{DATABASE}.{table}" for table in tables))
        yield made
        for table in tables:
            made.query(f"DELETE FROM {DATABASE}.{table} WHERE task LIKE 'plan%'")
        made.commit()
        made.query("DROP DATABASE progress_plans")


def _fill(session: MySqlSession, table: str) -> None:
    columns = session.query(
        "SELECT COLUMN_NAME, DATA_TYPE FROM information_schema.COLUMNS"
        f" WHERE TABLE_SCHEMA = '{DATABASE}' AND TABLE_NAME = '{table}' AND EXTRA NOT LIKE '%auto_increment%'"
    )
    names = [str(name) for name, _ in columns]
    values = ", ".join(_value(str(name), str(kind)) for name, kind in columns)
    session.query(
        f"INSERT IGNORE INTO {DATABASE}.{table} ({', '.join(names)})"
        f" SELECT {values} FROM progress_plans.number"
    )


def _value(name: str, kind: str) -> str:
    if name == "task":
        return f"CONCAT('plan', n DIV {ROWS_OF_A_TASK})"
    if kind == "datetime":
        return "UTC_TIMESTAMP()"
    if name in ("op", "past_start"):
        return "1"
    return f"n MOD {ROWS_OF_A_TASK}" if "int" in kind else f"CONCAT('x', n MOD {ROWS_OF_A_TASK})"


def test_progress_of_other_tasks_is_not_read(session: MySqlSession, server: DatabaseServer) -> None:
    """Each statement reads rows of its task only."""
    texts = {
        str(name)
        for name, kind in session.query(
            "SELECT COLUMN_NAME, DATA_TYPE FROM information_schema.COLUMNS"
            f" WHERE TABLE_SCHEMA = '{DATABASE}'"
        )
        if "int" not in str(kind)
    }
    found = {filled(sql, texts) for sql in statements() if not OF_ALL_TASKS.match(sql)}
    with explained(server, DATABASE) as plans:
        for sql in sorted(found):
            plans.explain(sql)
    assert plans.statements == len(found) > 50
    assert not plans.scans(rows_max=READ_MAX), plans.shown(rows_max=READ_MAX)
