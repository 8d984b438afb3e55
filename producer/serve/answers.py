"""Answers statements from the relay log: variables, functions, and what SHOW prints about binlogs and replicas.

Source of the columns: MySQL 9.7 and MariaDB 11.4. Other versions name some of them differently: the words follow the
version of the served binlog (``schemas.server_version``).
"""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from millrace.errors import MillraceError
from millrace.producer.serve.binlog_events import COLUMNS, binlog_events
from millrace.producer.serve.catalogue import Catalogue, ServedFile
from millrace.producer.serve.requests import Registration
from millrace.producer.serve.statements import (
    Assign,
    Call,
    Expression,
    Literal,
    Nothing,
    Select,
    Show,
    System,
    User,
    is_like,
    parse_statement,
    refused,
)
from millrace.producer.serve.variables import (
    GTID_VARIABLES,
    gtid_variable,
    source_server_id,
    system_variables,
)
from millrace.producer.serve.wire import Refusal, Value
from millrace.schemas.gtid import Flavour, GtidSet

Row: TypeAlias = Sequence[Value]
Result: TypeAlias = tuple[Sequence[str], Sequence[Row]]

_EMPTY = {  # SHOW statements without rows: a relay log is no replica and has no tables
    "WARNINGS": ("Level", "Code", "Message"),
    "REPLICA STATUS": ("Replica_IO_State", "Source_Host"),
    "SLAVE STATUS": ("Slave_IO_State", "Master_Host"),
    "ALL SLAVES STATUS": ("Connection_name", "Slave_SQL_State"),
    "DATABASES": ("Database",),
    "STATUS": ("Variable_name", "Value"),
    "COLLATION": ("Collation", "Charset", "Id"),
}


@dataclass(slots=True)
class ClientState:
    """The variables that a client set: user variables, and session variables that differ."""

    user: str
    peer: str
    thread: int
    port: int
    variables: dict[str, Value] = field(default_factory=dict)
    session: dict[str, Value] = field(default_factory=dict)


class Answers:
    """Answers for one client. ``replicas`` returns the registrations of all clients."""

    def __init__(
        self,
        catalogue: Catalogue,
        state: ClientState,
        replicas: Callable[[], Iterable[Registration]],
    ) -> None:
        self._catalogue = catalogue
        self._state = state
        self._replicas = replicas
        self._is_mysql = catalogue.flavour is Flavour.MYSQL

    def answer(self, sql: str) -> Result | None:
        """Columns and rows; None for OK. Refusal; errors of the relay log."""
        match parse_statement(sql):
            case Select(columns):
                titles = [title for title, _ in columns]
                return titles, [[self._value(expression) for _, expression in columns]]
            case Assign(values):
                self._assign(values)
                return None
            case Show() as show:
                return self._show(show, sql)
            case Nothing():
                return None

    # ---- expressions ---------------------------------------------------------------------------------

    def _assign(self, values: Sequence[tuple[System | User, Expression]]) -> None:
        for target, expression in values:
            value = self._value(expression)
            if isinstance(target, User):
                self._state.variables[target.name] = value
                continue
            if target.is_global:
                text = "Access denied; a relay log has no global variables to set"
                raise Refusal(1227, "42000", text)
            self._system(target.name)
            self._state.session[target.name] = value

    def _value(self, expression: Expression) -> Value:
        match expression:
            case Literal(value):
                return value
            case User(name):
                return self._state.variables.get(name)
            case System(name, is_global):
                if not is_global and name in self._state.session:
                    return self._state.session[name]
                return self._system(name)
            case Call(name, arguments):
                return self._call(name, [self._value(each) for each in arguments])

    def _system(self, name: str) -> Value:
        if name in GTID_VARIABLES[self._catalogue.flavour]:
            return gtid_variable(self._catalogue, name)
        found = system_variables(self._catalogue, port=self._state.port)
        if name not in found:
            raise Refusal(1193, "HY000", f"Unknown system variable '{name}'")
        return found[name]

    def _call(self, name: str, arguments: Sequence[Value]) -> Value:
        account = f"{self._state.user}@{self._state.peer}"
        match name, arguments:
            case "VERSION", []:
                return self._system("version")
            case "UNIX_TIMESTAMP", []:
                return int(time.time())
            case "NOW" | "CURRENT_TIMESTAMP" | "SYSDATE" | "UTC_TIMESTAMP", []:
                return time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime())
            case "CONNECTION_ID", []:
                return self._state.thread
            case "DATABASE" | "SCHEMA", []:
                return None
            case "CURRENT_USER" | "USER" | "SESSION_USER" | "SYSTEM_USER", []:
                return account
            case "GTID_SUBSET", [part, whole]:
                return int(GtidSet.parse(str(whole)).includes(GtidSet.parse(str(part))))
            case "GTID_SUBTRACT", [whole, part]:
                return str(GtidSet.parse(str(whole)) - GtidSet.parse(str(part)))
            case _:
                text = f"FUNCTION {name} does not exist in a relay log"
                raise Refusal(1305, "42000", text)

    # ---- SHOW ----------------------------------------------------------------------------------------

    def _show(self, show: Show, sql: str) -> Result:
        match show.what:
            case "VARIABLES":
                return ("Variable_name", "Value"), self._variables(show)
            case "BINARY LOGS" | "MASTER LOGS":
                return self._binary_logs()
            case "MASTER STATUS" | "BINARY LOG STATUS" | "BINLOG STATUS":
                return self._binlog_status()
            case "BINLOG EVENTS":
                return COLUMNS, self._events(show)
            case "REPLICAS" | "SLAVE HOSTS":
                return self._replica_list()
            case "GRANTS":
                account = f"'{self._state.user}'@'%'"
                grants = f"GRANT REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO {account}"
                return (f"Grants for {account}",), [[grants]]
            case what if what in _EMPTY:
                return _EMPTY[what], []
            case _:
                raise refused(sql)

    def _variables(self, show: Show) -> list[Row]:
        found: Mapping[str, Value] = system_variables(self._catalogue, port=self._state.port)
        found = {**found, **self._state.session}
        names = [*found, *GTID_VARIABLES[self._catalogue.flavour]]
        if show.like is not None:
            names = [name for name in names if is_like(name, show.like)]
        if show.names is not None:
            names = [name for name in names if name in show.names]
        values = {name: found[name] for name in names if name in found}
        values |= {
            name: gtid_variable(self._catalogue, name) for name in names if name not in found
        }
        return [[name, str(value)] for name, value in sorted(values.items())]

    def _binary_logs(self) -> Result:
        served = self._catalogue.served
        rows: list[Row] = []
        for file in served.files:
            try:
                size = self._catalogue.size_of(served, file)
            except FileNotFoundError:
                continue
            rows.append([file.served_name, size, *(["No"] if self._is_mysql else [])])
        encrypted = ("Encrypted",) if self._is_mysql else ()
        return ("Log_name", "File_size", *encrypted), rows

    def _binlog_status(self) -> Result:
        served = self._catalogue.served
        columns = ["File", "Position", "Binlog_Do_DB", "Binlog_Ignore_DB"]
        columns += ["Executed_Gtid_Set"] if self._is_mysql else []
        if served.newest is None:
            return columns, []
        row: list[Value] = [served.newest.served_name, served.end, "", ""]
        row += [gtid_variable(self._catalogue, "gtid_executed")] if self._is_mysql else []
        return columns, [row]

    def _events(self, show: Show) -> list[Row]:
        served = self._catalogue.served
        file: ServedFile | None = served.find(show.file)
        if not show.file and served.files:
            file = served.files[0]
        if file is None:
            text = "Error when executing command SHOW BINLOG EVENTS: Could not find target log"
            raise Refusal(1220, "HY000", text)
        end = self._catalogue.size_of(served, file)
        return list(binlog_events(self._catalogue, file, begin=show.pos, end=end, limit=show.limit))

    def _replica_list(self) -> Result:
        ours = source_server_id(self._catalogue)
        found = list(self._replicas())
        if self._is_mysql:
            columns: Sequence[str] = ("Server_Id", "Host", "Port", "Source_Id", "Replica_UUID")
            return columns, [[r.server_id, r.host, r.port, ours, r.uuid] for r in found]
        columns = ("Server_id", "Host", "Port", "Master_id")
        return columns, [[r.server_id, r.host, r.port, ours] for r in found]


def explain(error: MillraceError) -> Refusal:
    """The client's error for a problem of the relay log."""
    return Refusal(1105, "HY000", str(error))
