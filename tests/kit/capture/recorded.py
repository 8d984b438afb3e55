"""Answers of MySQL versions that the tests do not run, as the manuals of 8.0 and 8.4 print them.

A statement that the version does not know gets error 1064, as from the server. The answers have only the columns that
Millrace reads. Sources: "SHOW REPLICA STATUS", "SHOW MASTER STATUS", "SHOW BINARY LOGS" and
"SHOW BINLOG EVENTS" of the reference manuals; "Changes in MySQL" 8.0.22, 8.0.26, 8.2.0, 8.4.0.
"""

import re
from collections.abc import Mapping, Sequence
from typing import cast

from millrace.drivers.mysql.connection import MySqlSession, NamedRow, Value
from millrace.errors import Fatal
from millrace.schemas.documents.model import Member
from millrace.schemas.server_version import ServerVersion

UUID = "3e11fa47-71ca-11e1-9e33-c80aa9429562"
_FILTERS: NamedRow = {
    "Replicate_Do_DB": "",
    "Replicate_Ignore_DB": "",
    "Replicate_Do_Table": "",
    "Replicate_Ignore_Table": "",
    "Replicate_Wild_Do_Table": "",
    "Replicate_Wild_Ignore_Table": "",
    "Replicate_Ignore_Server_Ids": "",
    "Replicate_Rewrite_DB": "",
}
_BINLOG: NamedRow = {
    "File": "binlog.000002",
    "Position": 1307,
    "Binlog_Do_DB": "",
    "Binlog_Ignore_DB": "",
    "Executed_Gtid_Set": f"{UUID}:1-5",
}
_EVENTS: Sequence[NamedRow] = (
    {"Log_name": "binlog.000002", "Pos": 4, "Event_type": "Format_desc", "Info": "Server ver: 8"},
    {"Log_name": "binlog.000002", "Pos": 126, "Event_type": "Previous_gtids", "Info": ""},
)
# a server with the settings that Millrace requires
SETTINGS: Mapping[str, str] = {
    "log_bin": "ON",
    "binlog_format": "ROW",
    "binlog_row_image": "FULL",
    "binlog_row_metadata": "FULL",
    "binlog_row_value_options": "",
    "binlog_checksum": "CRC32",
    "gtid_mode": "ON",
    "lower_case_table_names": "0",
}
_OLD_NAMES = {"log_slave_updates": "ON", "slave_parallel_workers": "4"}
_NEW_NAMES = {"log_replica_updates": "ON", "replica_parallel_workers": "4"}
_BEHIND_SLAVE: NamedRow = {
    "Master_Host": "db1",
    "Master_Port": 3306,
    "Slave_IO_Running": "Yes",
    "Slave_SQL_Running": "Yes",
    "Seconds_Behind_Master": 3,
    **_FILTERS,
}
_BEHIND_REPLICA: NamedRow = {
    "Source_Host": "db1",
    "Source_Port": 3306,
    "Replica_IO_Running": "Yes",
    "Replica_SQL_Running": "Yes",
    "Seconds_Behind_Source": 3,
    **_FILTERS,
}

# by version: the statements that differ, and the settings under the version's names
_VERSIONS: Mapping[str, tuple[Mapping[str, Sequence[NamedRow]], Mapping[str, str]]] = {
    "8.0.21": (
        {"SHOW SLAVE STATUS": [_BEHIND_SLAVE], "SHOW MASTER STATUS": [_BINLOG]},
        _OLD_NAMES | {"slave_preserve_commit_order": "ON"},
    ),
    "8.0.25": (
        {
            "SHOW SLAVE STATUS": [_BEHIND_SLAVE],
            "SHOW REPLICA STATUS": [_BEHIND_REPLICA],
            "SHOW MASTER STATUS": [_BINLOG],
        },
        _OLD_NAMES | {"slave_preserve_commit_order": "ON"},
    ),
    "8.0.36": (
        {
            "SHOW SLAVE STATUS": [_BEHIND_SLAVE],
            "SHOW REPLICA STATUS": [_BEHIND_REPLICA],
            "SHOW MASTER STATUS": [_BINLOG],
        },
        _OLD_NAMES
        | _NEW_NAMES
        | {"slave_preserve_commit_order": "ON", "replica_preserve_commit_order": "ON"},
    ),
    "8.4.0": (
        {"SHOW REPLICA STATUS": [_BEHIND_REPLICA], "SHOW BINARY LOG STATUS": [_BINLOG]},
        _NEW_NAMES | {"replica_preserve_commit_order": "ON"},
    ),
}
VERSIONS = tuple(_VERSIONS)


class RecordedServer:
    """A replica of this version; ``settings`` overrides its variables."""

    def __init__(self, version: str, **settings: str) -> None:
        statements, names = _VERSIONS[version]
        self.member = Member("db", 3306)
        self.version_text = version
        self.version = ServerVersion.parse(version)
        self.flavour = self.version.flavour
        self._variables = {**SETTINGS, **names, **settings}
        self._statements: dict[str, Sequence[NamedRow]] = {
            **statements,
            "SHOW BINARY LOGS": [
                {"Log_name": "binlog.000002", "File_size": 1307, "Encrypted": "No"}
            ],
            "SELECT @@GLOBAL.gtid_executed AS position": [{"position": f"{UUID}:1-5"}],
            "SELECT @@GLOBAL.gtid_purged AS gtids": [{"gtids": ""}],
        }

    @property
    def connection(self) -> MySqlSession:
        """A connection for code that queries a member."""
        return cast(MySqlSession, self)

    @property
    def name(self) -> str:
        """As host:port."""
        return str(self.member)

    def named(self, statement: str, arguments: Sequence[Value] = ()) -> Sequence[NamedRow]:
        """The answer, or error 1064."""
        if statement.startswith("SHOW GLOBAL VARIABLES LIKE 'server_uuid'"):
            return [{"Variable_name": "server_uuid", "Value": UUID}]
        if statement.startswith("SHOW GLOBAL VARIABLES"):
            wanted = re.findall(r"'(\w+)'", statement)
            known = self._variables
            return [
                {"Variable_name": name, "Value": known[name]} for name in wanted if name in known
            ]
        if statement.startswith("SHOW BINLOG EVENTS"):
            return _EVENTS
        if statement not in self._statements:
            text = f"You have an error in your SQL syntax near '{statement.split(' ', 1)[1]}'"
            raise Fatal("MR-1007", f"{self.member} {self.version_text} answers 1064: {text}")
        return self._statements[statement]
