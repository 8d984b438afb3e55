"""The definition of a table as its server prints it, by which a load sees that the source has altered the table.

The stored definition is the one that the target's table was created with. So a copy fits as long as the source prints
the same. Under a view that changes the table only the definition's hash is stored: defaults and comments may show what
the view hides.
"""

import hashlib
import re

from millrace.drivers.mysql.catalog import CatalogTable
from millrace.drivers.mysql.connection import MySqlSession, stored_text
from millrace.schemas.sql.quoting import table_name

_HASH = "sha256:"
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


def is_as(session: MySqlSession, table: CatalogTable, stored: str) -> bool:
    """Whether the definition is the stored one. Fatal MR-5012 if the table was dropped meanwhile."""
    return is_stored(definition(session, table), stored)


def is_stored(text: str, stored: str) -> bool:
    """Whether a definition is the stored one."""
    plain = without_rows(text)
    return stored == (hash_of(plain) if stored.startswith(_HASH) else plain)


def hash_of(plain: str) -> str:
    """The text that is stored in the place of a definition."""
    return _HASH + hashlib.sha256(plain.encode(errors="surrogateescape")).hexdigest()


def without_rows(text: str) -> str:
    """A definition without what rows change, as it is stored and compared."""
    return stored_text(_AUTO_INCREMENT.sub("", text))
