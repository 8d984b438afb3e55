"""The statements of the model target: those that apply writes, by their form.

Row statements are parsed from their text. Statements on Millrace's own tables have arguments. All columns of the
user's tables are numbers.
"""

import re
from collections.abc import Callable, Iterable

from millrace.consumer.target.fence import HOLDERS_SQL
from millrace.consumer.target.progress import DATABASE as OURS
from millrace.consumer.target.running_statement import LIST_SQL, MARIADB_LIST_SQL
from millrace.consumer.target.table_state import SERVER_SQL
from millrace.consumer.target.wait_procedure import COMMENT
from millrace.drivers.mysql import catalog
from tests.simulation.binlog import DATABASE
from tests.simulation.model_target import (
    CatalogTable,
    Found,
    Method,
    ModelSession,
    Place,
    Values,
    error,
)

LOCK_WAIT_S = 5.0
STATEMENTS: list[tuple[re.Pattern[str], Method]] = []


def statement(pattern: str) -> Callable[[Method], Method]:
    """Register a statement's form."""

    def registered(method: Method) -> Method:
        STATEMENTS.append((re.compile(pattern, re.DOTALL), method))
        return method

    return registered


_NAME = r"`(?P<database>\w+)`\.`(?P<table>\w+)`"


def _table(found: Found) -> str:
    return f"{found['database']}.{found['table']}"


_LITERAL = re.compile(r"NULL|-?\d+|'(?:[^'\\]|\\.)*'")


def _values(text: str) -> Values:
    return tuple(_value(one) for one in _LITERAL.findall(text))


def _value(literal: str) -> object:
    if literal == "NULL":
        return None
    if literal.startswith("'"):
        return re.sub(r"\\(.)", r"\1", literal[1:-1])
    return int(literal)


def _tuples(text: str, width: int) -> list[Values]:
    flat = _values(text)
    assert len(flat) % width == 0
    return [flat[at : at + width] for at in range(0, len(flat), width)]


@statement(rf"INSERT INTO {_NAME} \((?P<names>[^)]*)\) VALUES (?P<rows>.*)$")
def _insert_rows(session: ModelSession, found: Found, _: Values) -> tuple[list[Values], int]:
    session.meet_statement_error()
    table = session.server.tables[_table(found)]
    names = re.findall(r"`(\w+)`", found["names"])
    rows = _tuples(found["rows"], len(names))
    for row in rows:
        given = dict(zip(names, row, strict=True))
        session.insert(_table(found), tuple(given.get(name) for name in table.columns))
    return [], len(rows)


@statement(rf"DELETE FROM {_NAME} WHERE \(?(?P<names>[`\w,]*?)\)? IN \((?P<rows>.*)\)$")
def _delete_list(session: ModelSession, found: Found, _: Values) -> tuple[list[Values], int]:
    return _delete_keys(session, found, tuple(re.findall(r"`(\w+)`", found["names"])))


def _delete_keys(session: ModelSession, found: Found, names: Values) -> tuple[list[Values], int]:
    session.meet_statement_error()
    table = session.server.tables[_table(found)]
    assert names == table.key
    places = [(_table(found), key) for key in _tuples(found["rows"], len(table.key))]
    matched = [place for place in places if session.get(place) is not None]
    for place in matched:
        session.put(place, None)
    return [], len(matched)


_JOINED = (
    r"\((?:SELECT (?P<columns>.*?) FROM DUAL WHERE 0 UNION ALL )?VALUES (?P<rows>.*)\) AS v"
    rf"(?: \((?P<names>[^)]*)\))? STRAIGHT_JOIN {_NAME}(?: FORCE INDEX \(PRIMARY\))? ON (?P<on>.*?)"
)


@statement(rf"DELETE `\w+`\.`\w+` FROM {_JOINED}$")
def _delete_rows(session: ModelSession, found: Found, _: Values) -> tuple[list[Values], int]:
    return _delete_keys(session, found, tuple(re.findall(r"\.`(\w+)` = v\.k\d", found["on"])))


@statement(rf"UPDATE {_JOINED} SET (?P<sets>.*)$")
def _update_rows(session: ModelSession, found: Found, _: Values) -> tuple[list[Values], int]:
    session.meet_statement_error()
    table = session.server.tables[_table(found)]
    names = re.findall(r"\b[kc]\d+\b", found["names"] or found["columns"])
    on = dict(re.findall(r"\.`(\w+)` = v\.(\w+)", found["on"]))
    sets = dict(re.findall(r"\.`(\w+)` = v\.(\w+)", found["sets"]))
    assert tuple(on) == table.key
    matched: set[Place] = set()  # a row is updated once, however often it is joined
    for values in _tuples(found["rows"], len(names)):
        given = dict(zip(names, values, strict=True))
        place = (_table(found), tuple(given[on[name]] for name in table.key))
        row = session.get(place)
        if row is None or place in matched:
            continue
        after = dict(zip(table.columns, row, strict=True))
        after |= {name: given[source] for name, source in sets.items()}
        session.change(place, tuple(after.values()))
        matched.add(place)
    return [], len(matched)


@statement(
    rf"(?P<verb>UPDATE|DELETE FROM) {_NAME}(?: SET (?P<sets>.*?))? WHERE (?P<where>.*?)(?P<limit> LIMIT 1)?$"
)
def _change_one(session: ModelSession, found: Found, _: Values) -> tuple[list[Values], int]:
    session.meet_statement_error()
    table = session.server.tables[_table(found)]
    pairs = re.findall(r"`(\w+)`(?: <=> |=)(NULL|-?\d+)", found["where"])
    wanted = {name: _value(text) for name, text in pairs}
    for place, row in session.all(_table(found)).items():
        given = dict(zip(table.columns, row, strict=True))
        if any(given[name] != value for name, value in wanted.items()):
            continue
        if found["verb"] == "UPDATE":
            sets = re.findall(r"`(\w+)`=(NULL|-?\d+)", found["sets"])
            given |= {name: _value(text) for name, text in sets}
            session.change(place, tuple(given.values()))
        else:
            session.put(place, None)
        return [], 1
    return [], 0


@statement(rf"SELECT (?P<columns>`[^()]*`) FROM {_NAME} WHERE (?P<where>.*)$")
def _read_rows(session: ModelSession, found: Found, _: Values) -> tuple[list[Values], int]:
    """A look-up of the rows that a change conflicts with."""
    columns = session.server.tables[_table(found)].columns
    pairs = re.findall(r"`(\w+)`(?: <=> |=)(NULL|-?\d+)", found["where"])
    wanted = {name: _value(text) for name, text in pairs}
    rows = (dict(zip(columns, row, strict=True)) for row in session.all(_table(found)).values())
    matched = [row for row in rows if wanted.items() <= row.items()]
    names = re.findall(r"`(\w+)`", found["columns"])
    return [tuple(row[name] for name in names) for row in matched], 0


@statement(
    r"SELECT (?P<columns>[\w, ]+) FROM millrace\.(?P<table>fence|progress) WHERE task = %s"
    r"(?P<lock> FOR SHARE| LOCK IN SHARE MODE| FOR UPDATE|) ?$"
)
def _read_locked(
    session: ModelSession, found: Found, arguments: Values
) -> tuple[list[Values], int]:
    server, place = session.server, (f"{OURS}.{found['table']}", arguments)
    with server.changed:
        if found["lock"]:
            session.is_in_transaction = True
        if "SHARE" in found["lock"]:
            _wait(session, lambda: server.exclusive.get(place, session.number) == session.number)
            server.shared.setdefault(place, set()).add(session.number)
        elif found["lock"] == " FOR UPDATE":
            _wait(
                session,
                lambda: (
                    not server.shared.get(place, set()) - {session.number}
                    and server.exclusive.get(place, session.number) == session.number
                ),
            )
            server.exclusive[place] = session.number
    return _chosen(session, found, [session.get(place)]), 0


def _chosen(session: ModelSession, found: Found, rows: Iterable[Values | None]) -> list[Values]:
    known = session.server.tables[f"{OURS}.{found['table']}"].columns
    at = [known.index(name) for name in found["columns"].split(", ")]
    return [tuple(row[index] for index in at) for row in rows if row is not None]


def _wait(session: ModelSession, is_free: Callable[[], bool]) -> None:
    server = session.server
    if not server.changed.wait_for(lambda: is_free() or not session.open, LOCK_WAIT_S):
        raise error(1205, "Lock wait timeout exceeded")
    session.check_open()


@statement(r"INSERT IGNORE INTO millrace\.fence VALUES")
def _begin_fence(session: ModelSession, _: Found, arguments: Values) -> tuple[list[Values], int]:
    place = (f"{OURS}.fence", arguments)
    if session.get(place) is None:
        session.put(place, (*arguments, 0, 0))
    return [], 1


@statement(r"UPDATE millrace\.fence SET")
def _raise_fence(session: ModelSession, _: Found, arguments: Values) -> tuple[list[Values], int]:
    epoch, run, task = arguments
    session.put((f"{OURS}.fence", (task,)), (task, epoch, run))
    return [], 1


@statement(r"UPDATE millrace\.progress SET (?P<sets>.*) WHERE (?P<where>.*)$")
def _move_progress(session: ModelSession, found: Found, _: Values) -> tuple[list[Values], int]:
    task, *seen = _values(found["where"])
    place = (f"{OURS}.progress", (task,))
    row = session.get(place)
    if row is None or (seen and list(row[1:3]) != seen):
        return [], 0
    values = _values(found["sets"])  # with or without the lag, the last column
    session.put(place, (task, *values, *row[1 + len(values) :]))
    return [], 1


@statement(r"UPDATE millrace\.ddl_intent SET (?P<column>\w+) = %s WHERE")
def _set_in_intent(
    session: ModelSession, found: Found, arguments: Values
) -> tuple[list[Values], int]:
    value, task, seq = arguments
    place = (f"{OURS}.ddl_intent", (task, seq))
    row = session.get(place)
    if row is None:
        return [], 0
    at = list(session.server.tables[f"{OURS}.ddl_intent"].columns).index(found["column"])
    session.put(place, (*row[:at], value, *row[at + 1 :]))
    return [], 1


@statement(
    r"(?P<verb>INSERT|REPLACE) INTO millrace\.(?P<table>(?!conflict)\w+)(?: \([^)]*\))? VALUES"
)
def _write_ours(session: ModelSession, found: Found, arguments: Values) -> tuple[list[Values], int]:
    table = f"{OURS}.{found['table']}"
    width = len(session.server.tables[table].columns)
    row = (*arguments, *[""] * (width - len(arguments)))  # ddl_intent: no decision yet
    session.insert(table, row, replace=found["verb"] == "REPLACE")
    return [], 1


@statement(r"DELETE FROM millrace\.(?P<table>\w+) WHERE task = %s(?: AND (?:seq|run) = %s)?$")
def _delete_ours(
    session: ModelSession, found: Found, arguments: Values
) -> tuple[list[Values], int]:
    gone = [
        place
        for place in session.all(f"{OURS}.{found['table']}")
        if place[1][: len(arguments)] == arguments
    ]
    for place in gone:
        session.put(place, None)
    return [], len(gone)


@statement(
    r"SELECT (?P<columns>[\w, ]+) FROM millrace\.(?P<table>\w+) WHERE task = %s(?: AND seq = %s)?$"
)
def _read_ours(session: ModelSession, found: Found, arguments: Values) -> tuple[list[Values], int]:
    rows = session.all(f"{OURS}.{found['table']}").items()
    chosen = [row for place, row in rows if place[1][: len(arguments)] == arguments]
    return _chosen(session, found, chosen), 0


@statement(
    r"DELETE FROM millrace\.applied WHERE task = %s AND run (?P<which>= %s AND batch <=|<) %s$"
)
def _delete_passed(session: ModelSession, _: Found, arguments: Values) -> tuple[list[Values], int]:
    task, run, *through = arguments
    gone = [
        place
        for place in session.all(f"{OURS}.applied")
        if place[1][0] == task
        and ((place[1][1] == run and place[1][2] <= through[0]) if through else place[1][1] < run)
    ]
    for place in gone:
        session.put(place, None)
    return [], len(gone)


@statement(r"SELECT COUNT.* FROM millrace\.aside WHERE task = %s")
def _kept_size(_: ModelSession, __: Found, ___: Values) -> tuple[list[Values], int]:
    return [(0, 0)], 1


@statement(r"SELECT .* FROM millrace\.aside WHERE task = %s")
def _kept_rows(_: ModelSession, __: Found, ___: Values) -> tuple[list[Values], int]:
    return [], 0  # the tasks here keep none


@statement(r"SELECT [\w, ']+ FROM millrace\.load_table WHERE task = %s ORDER BY ")
def _loaded_tables(_: ModelSession, __: Found, ___: Values) -> tuple[list[Values], int]:
    return [], 0  # the tasks here load nothing


@statement(r"SELECT (task|target_database)\b.* FROM millrace\.merged_table ")
def _merged_targets(_: ModelSession, __: Found, ___: Values) -> tuple[list[Values], int]:
    return [], 0  # the tasks here merge no tables


@statement(r"SELECT ROUTINE_COMMENT")
def _procedure(session: ModelSession, _: Found, __: Values) -> tuple[list[Values], int]:
    return [(COMMENT,)], 0  # it is there


@statement(r"CALL millrace\.wait_for_gtid")
def _called(session: ModelSession, _: Found, __: Values) -> tuple[list[Values], int]:
    return [(0,)], 0  # it answers; only a start calls it here


@statement(r"SELECT @@lower_case_table_names")
def _name_case(session: ModelSession, _: Found, __: Values) -> tuple[list[Values], int]:
    return [(0,)], 0


@statement(r"SELECT IS_USED_LOCK")
def _lock_holder(session: ModelSession, _: Found, arguments: Values) -> tuple[list[Values], int]:
    return [(session.server.named_locks.get(arguments[0]),)], 0


@statement(re.escape(MARIADB_LIST_SQL))
def _process(session: ModelSession, _: Found, arguments: Values) -> tuple[list[Values], int]:
    there = arguments[0] in session.server.sessions
    return [("Sleep", 0, "", None)] if there else [], 0  # each statement is over at once


@statement(re.escape(LIST_SQL))
def _processes(session: ModelSession, _: Found, __: Values) -> tuple[list[Values], int]:
    numbers = session.server.sessions
    return [(number, "", "", None, "Sleep", 0, "", None) for number in numbers], 0


@statement(r"SELECT GET_LOCK")
def _take_lock(session: ModelSession, _: Found, arguments: Values) -> tuple[list[Values], int]:
    holder = session.server.named_locks.setdefault(arguments[0], session.number)
    return [(int(holder == session.number),)], 0


@statement(r"SELECT RELEASE_LOCK")
def _drop_lock(session: ModelSession, _: Found, arguments: Values) -> tuple[list[Values], int]:
    if session.server.named_locks.get(arguments[0]) == session.number:
        del session.server.named_locks[arguments[0]]
    return [(1,)], 0


@statement(r"KILL (?P<number>\d+)$")
def _kill(session: ModelSession, found: Found, _: Values) -> tuple[list[Values], int]:
    session.server.end_session(int(found["number"]))
    return [], 0


@statement(re.escape(HOLDERS_SQL))
def _holders(session: ModelSession, _: Found, arguments: Values) -> tuple[list[Values], int]:
    task, but = arguments[:2]
    rows = session.server.of(f"{OURS}.session")
    runs = {row[1]: row[2] for row in rows if row[0] == task}
    locking = session.server.exclusive.values()
    holders = [
        number
        for number, other in session.server.sessions.items()
        if number != but
        and other.is_in_transaction
        and (runs.get(number) or (number in runs and number in locking))
    ]
    return [(number,) for number in holders], 0


@statement(r"SELECT VERSION\(\)$")
def _version(session: ModelSession, _: Found, __: Values) -> tuple[list[Values], int]:
    return [(session.server.version,)], 0


@statement(r"SELECT @@server_uuid$|" + re.escape(SERVER_SQL) + "$")
def _server(session: ModelSession, _: Found, __: Values) -> tuple[list[Values], int]:
    return [("the model",)], 0


@statement(r"SELECT @@SESSION\.sql_generate_invisible_primary_key, ")
def _key_rules(session: ModelSession, _: Found, __: Values) -> tuple[list[Values], int]:
    return [(0, 0)], 0


@statement(r"SELECT 1$")
def _ping(session: ModelSession, _: Found, __: Values) -> tuple[list[Values], int]:
    return [(1,)], 0


@statement(r"SHOW COLUMNS FROM millrace\.\w+ LIKE '(?P<column>\w+)'$")
def _has_column(session: ModelSession, found: Found, _: Values) -> tuple[list[Values], int]:
    return [(found["column"],)], 0


@statement(
    r"CREATE (DATABASE|TABLE) IF NOT EXISTS millrace|SET SESSION |USE |UPDATE millrace\.conflict"
    r"|(?:DELETE FROM|REPLACE INTO) millrace\.conflict"  # no judge asks for conflicts
)
def _nothing(session: ModelSession, _: Found, __: Values) -> tuple[list[Values], int]:
    return [], 0


# ---- structure -------------------------------------------------------------------------------------


@statement(r"SELECT SCHEMA_NAME FROM information_schema\.SCHEMATA$")
def _databases(session: ModelSession, _: Found, __: Values) -> tuple[list[Values], int]:
    return [(DATABASE,), (OURS,)], 0


@statement(r"SELECT 1 FROM information_schema\.SCHEMATA")
def _has_database(session: ModelSession, _: Found, arguments: Values) -> tuple[list[Values], int]:
    return [(1,)] if arguments[0] == DATABASE else [], 0


@statement(r"SHOW GLOBAL STATUS WHERE Variable_name IN \('Com_alter_table'")
def _alterations(session: ModelSession, _: Found, __: Values) -> tuple[list[Values], int]:
    return [("Com_alter_table", 0)], 0


@statement(re.escape(catalog.TRIGGERS_SQL))
def _triggers(session: ModelSession, _: Found, __: Values) -> tuple[list[Values], int]:
    return [], 0


@statement(re.escape(catalog.LIMITS_SQL) + "$")
def _packet(session: ModelSession, _: Found, __: Values) -> tuple[list[Values], int]:
    return [(1 << 22, 0, 0)], 0


def _shop(session: ModelSession, asked: Values) -> list[tuple[str, CatalogTable]]:
    tables = session.server.tables.items()
    found = [(n.partition(".")[2], t) for n, t in tables if n.startswith(f"{DATABASE}.")]
    return [(name, table) for name, table in found if asked[1:] in ((), (name,))]


def _asked(sql: str) -> str:
    return "|".join(map(re.escape, (sql, catalog.of_one_table(sql))))


@statement(_asked(catalog.COLUMNS_SQL))
def _columns(session: ModelSession, _: Found, asked: Values) -> tuple[list[Values], int]:
    return [
        (
            name,
            column,
            "int",
            "int",
            None,
            None,
            "NO" if column in table.key else "YES",
            "",
            "",
            None,
            0,
        )
        for name, table in _shop(session, asked)
        for column in table.columns
    ], 0


@statement(_asked(catalog.TABLE_KINDS_SQL))
def _kinds(session: ModelSession, _: Found, asked: Values) -> tuple[list[Values], int]:
    return [(name, "BASE TABLE", "InnoDB") for name, _table in _shop(session, asked)], 0


@statement(re.escape(catalog.ENGINES_SQL))
def _engines(session: ModelSession, _: Found, __: Values) -> tuple[list[Values], int]:
    return [("InnoDB",)], 0


@statement(_asked(catalog.UNIQUE_KEYS_SQL))
def _unique_keys(session: ModelSession, _: Found, asked: Values) -> tuple[list[Values], int]:
    found: list[Values] = []
    for name, table in _shop(session, asked):
        found += [(name, "PRIMARY", column, None, "A", "BTREE", 0) for column in table.key]
        for key in table.unique:
            found += [(name, key[0], column, None, "A", "BTREE", 0) for column in key]
    return found, 0


@statement("|".join((_asked(catalog.FOREIGN_RULES_SQL), _asked(catalog.FOREIGN_COLUMNS_SQL))))
def _foreign_keys(session: ModelSession, _: Found, __: Values) -> tuple[list[Values], int]:
    return [], 0


@statement(rf"SHOW CREATE TABLE {_NAME}$")
def _show_table(session: ModelSession, found: Found, _: Values) -> tuple[list[Values], int]:
    table = session.server.tables.get(_table(found))
    if table is None:
        raise error(1146, "no such table")
    columns = ",\n".join(f"  `{column}` int" for column in table.columns)
    shown = f"CREATE TABLE `{found['table']}` (\n{columns}\n) ENGINE=InnoDB"
    return [(found["table"], shown)], 0


@statement(rf"SELECT 1 FROM {_NAME} LIMIT 1$")
def _any_row(session: ModelSession, found: Found, _: Values) -> tuple[list[Values], int]:
    return [(1,) for _ in session.all(_table(found))][:1], 0


@statement(r"SELECT NAME, TABLE_ID FROM information_schema\.INNODB_(SYS_)?TABLES")
def _table_ids(session: ModelSession, _: Found, arguments: Values) -> tuple[list[Values], int]:
    name = str(arguments[0])
    return [(name, session.server.tables[name.replace("/", ".")].id)], 0


@statement(
    r"SELECT NAME, CAST\(SPACE AS UNSIGNED\) FROM information_schema\.INNODB_TABLESPACES_BRIEF"
)
def _table_spaces(session: ModelSession, _: Found, arguments: Values) -> tuple[list[Values], int]:
    name = str(arguments[0])
    return [(name, session.server.tables[name.replace("/", ".")].id)], 0


@statement(r"TRUNCATE TABLE (?P<table>\w+)$")
def _truncate(session: ModelSession, found: Found, _: Values) -> tuple[list[Values], int]:
    session.commit_now()
    server, name = session.server, f"{DATABASE}.{found['table']}"
    for place in [place for place in server.rows if place[0] == name]:
        del server.rows[place]
    server.tables[name].id = server.next_number()
    return [], 0


@statement(r"ALTER TABLE (?P<table>\w+) ADD COLUMN (?P<column>\w+) INT$")
def _alter(session: ModelSession, found: Found, _: Values) -> tuple[list[Values], int]:
    session.commit_now()
    server, name = session.server, f"{DATABASE}.{found['table']}"
    if found["column"] in server.tables[name].columns:
        raise error(1060, f"Duplicate column name '{found['column']}'")
    server.tables[name].columns.append(found["column"])
    for place in [place for place in server.rows if place[0] == name]:
        server.rows[place] = (*server.rows[place], None)
    return [], 0
