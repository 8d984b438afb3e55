"""The structure of tables whose table maps have no names: those that the server's catalogue has now.

With binlog_row_metadata MINIMAL (the default of MySQL) or NO_LOG (of MariaDB), a table map has the types of the columns
alone. For a look, names and the rest come from information_schema if the number of columns and their types are those of
the table map. A table that was changed since may have had other names: ``guessed`` has the tables whose names are so.
"""

from collections.abc import Callable, Mapping

from millrace.drivers.mysql.catalog import read_collations, read_table
from millrace.drivers.mysql.connection import MySqlSession
from millrace.drivers.mysql.table_schema import table_schema
from millrace.errors import Fatal
from millrace.producer.convert.tables import describe_by_map, table_names
from millrace.schemas.gtid import Flavour
from millrace.schemas.table.structure import TableSchema
from millrace.schemas.table.table_map import read_real_types

_NO_NAMES = "MR-6004"


class CatalogueNames:
    """``connect`` opens a session that may read information_schema. For one thread."""

    def __init__(self, connect: Callable[[], MySqlSession]) -> None:
        self._connect = connect
        self._session: MySqlSession | None = None
        self._collations: Mapping[str, int] = {}
        self.guessed: list[str] = []

    def describe(self, body: bytes, flavour: Flavour) -> TableSchema:
        """The structure of a table map. Fatal MR-6004 if neither it nor the catalogue has the names."""
        try:
            return describe_by_map(body, flavour)
        except Fatal as error:
            if error.code != _NO_NAMES:
                raise
            return self._of_catalogue(body, flavour, error)

    def _of_catalogue(self, body: bytes, flavour: Flavour, error: Fatal) -> TableSchema:
        database, table = table_names(body)
        if self._session is None:
            self._session = self._connect()
            self._collations = read_collations(self._session)
        entry = read_table(self._session, (database, table))
        if entry is None:
            raise Fatal(error.code, f"{error.message}, and no such table exists now", fix=error.fix)
        schema = table_schema(entry, flavour, self._collations)
        count, types = read_real_types(body, flavour=flavour)
        now = [(column.type.code, column.type.parameter) for column in schema.columns]
        if count != len(now) or types != now:
            why = f"{error.message}, and the table has other columns now"
            raise Fatal(error.code, why, fix=error.fix, table=schema.full_name)
        if schema.full_name not in self.guessed:
            self.guessed.append(schema.full_name)
        return schema

    def close(self) -> None:
        """Close the session."""
        session, self._session = self._session, None
        if session is not None:
            session.close()
