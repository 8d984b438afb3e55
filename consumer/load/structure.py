"""The definition of a table as its server prints it, by which a load sees that the source has altered the table.

The stored definition is the one that the target's table was created with. So a copy fits as long as the source prints
the same.
"""

import re

from millrace.drivers.mysql.catalog import CatalogTable
from millrace.drivers.mysql.connection import MySqlSession, stored_text
from millrace.schemas.sql.quoting import table_name

_AUTO_INCREMENT = re.compile(r" AUTO_INCREMENT=\d+")


def definition(session: MySqlSession, table: CatalogTable) -> str:
    """The statement that creates the table; with surrogates for bytes that are not UTF-8.

    Fatal MR-5012 if it was dropped meanwhile.
    """
    kind = "SEQUENCE" if table.is_sequence else "TABLE"
    name = table_name(*table.key).decode()
    ((_, text),) = session.query(f"SHOW CREATE {kind} {name}")
    return text.decode() if isinstance(text, bytes) else str(text)


def structure_of(session: MySqlSession, table: CatalogTable) -> str:
    """The definition without what rows change."""
    return without_rows(definition(session, table))


def without_rows(text: str) -> str:
    """A definition without what rows change, as it is stored and compared."""
    return stored_text(_AUTO_INCREMENT.sub("", text))
