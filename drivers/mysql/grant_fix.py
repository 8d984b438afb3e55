"""Derives from a server's refusal the GRANT that fixes it. Pure text, for the fix of an error.

    you need (at least one of) the SUPER, SLAVE MONITOR privilege(s) …     GRANT SLAVE MONITOR ON *.* TO `a`@`%`;
    Access denied for user 'a'@'h' to database 'shop'                       GRANT SELECT, … ON `shop`.* TO `a`@`%`;
    SHOW command denied to user 'a'@'h' for table `shop`.`t`                GRANT SELECT ON `shop`.* TO `a`@`%`;

The account is the one that CURRENT_USER() returns: a refusal may name the client's host, for which no account exists.
If CURRENT_USER() is unknown, the name is used without a host, which means '%'. For a refused table the GRANT covers its
database: on a missing table only CREATE can be granted. Nothing is guessed: a text of another form, a table without its
database, or a right that is not a table privilege gives no statement. A refused database gets all privileges that apply
needs there (``drivers.mysql.grants``): the text does not say which one is missing.
"""

import re

from drivers.mysql.grants import (
    DATABASE_PRIVILEGES,
    LOAD_PRIVILEGES,
    META_DATABASE,
    META_PRIVILEGES,
)
from millrace.codes import CATALOGUE
from schemas.gtid import Flavour
from schemas.sql.quoting import quoted

_NEEDED = re.compile(r"you need \(at least one of\) the (?P<rights>[A-Z_, ]+?) privilege\(s\)")
_DATABASE = re.compile(r"Access denied for user '(?P<user>.*)'@'.*' to database '(?P<database>.*)'")
_TABLE = re.compile(
    r"(?P<rights>[A-Z][A-Z, ]*) command denied to user '(?P<user>.*)'@'.*' for table (?P<database>`.*`)\.`.*`"
)
_OF_A_SOURCE = (
    "Run it on the primary of the source set. `millrace grants print` prints what loads and comparisons need there:"
    " SELECT, and for loads on MySQL LOCK TABLES."
)
_TOO_MUCH = ("SUPER", "ALL PRIVILEGES")  # would suffice, but allow far too much
# the privilege in a refusal → the privilege in GRANT
_OF_TABLES = {
    "SELECT": "SELECT",
    "INSERT": "INSERT",
    "UPDATE": "UPDATE",
    "DELETE": "DELETE",
    "CREATE": "CREATE",
    "DROP": "DROP",
    "ALTER": "ALTER",
    "INDEX": "INDEX",
    "REFERENCES": "REFERENCES",
    "TRIGGER": "TRIGGER",
    "LOCK TABLES": "LOCK TABLES",
    "CREATE VIEW": "CREATE VIEW",
    "SHOW VIEW": "SHOW VIEW",
    "SHOW": "SELECT",
}


def privilege_fix(
    code: str, text: str, *, account: str = "", user: str = "", is_source: bool = False
) -> str:
    """The fix of ``code`` for the refusal ``text``: the missing GRANT, then everything that is needed.

    ``account`` is the answer of CURRENT_USER(), like ``a@%``. ``user`` is the name alone, for a text without one.
    ``is_source``: rows are read on the source of a task; otherwise a refused database is one that apply writes.
    """
    grant = _grant_for(text, account, user, is_source=is_source)
    needed = _OF_A_SOURCE if is_source else CATALOGUE[code].fix
    return f"{grant} (In all: {needed.rstrip('.')})" if grant else needed


def grantee(account: str, user: str) -> str:
    """The grantee as SQL: ``account`` if it is known, else ``user``, whose host is then '%'.

    A name may contain an @, a host may not.
    """
    name, at, host = account.rpartition("@")
    return f"{quoted(name).decode()}@{quoted(host).decode()}" if at else quoted(user).decode()


def _grant_for(text: str, account: str, user: str, *, is_source: bool) -> str:
    if (found := _NEEDED.search(text)) is not None:
        rights = [right.strip() for right in found["rights"].split(",")]
        right = next((right for right in rights if right not in _TOO_MUCH), rights[0])
        to = grantee(account, user) if account or user else "the account of the set document"
        return f"GRANT {right} ON *.* TO {to};"
    if (found := _DATABASE.search(text)) is not None:
        to = grantee(account, found["user"])
        name = found["database"]
        all_rights = DATABASE_PRIVILEGES[Flavour.MYSQL]
        if is_source:  # MariaDB refuses no lock, because none is taken there
            all_rights = LOAD_PRIVILEGES[Flavour.MYSQL]
        elif name == META_DATABASE:
            all_rights = META_PRIVILEGES
        return f"GRANT {', '.join(all_rights)} ON {quoted(name).decode()}.* TO {to};"
    if (found := _TABLE.search(text)) is not None:
        refused = [right.strip() for right in found["rights"].split(",")]
        if all(right in _OF_TABLES for right in refused):
            rights = [_OF_TABLES[right] for right in refused]
            to = grantee(account, found["user"])
            return f"GRANT {', '.join(rights)} ON {found['database']}.* TO {to};"
    return ""
