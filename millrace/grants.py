"""From a server's refusal, the GRANT that mends it: pure text, for the fix of an error.

    you need (at least one of) the SUPER, SLAVE MONITOR privilege(s) …     GRANT SLAVE MONITOR ON *.* TO `a`@`%`;
    Access denied for user 'a'@'h' to database 'shop'                       GRANT ALL PRIVILEGES ON `shop`.* TO `a`@`%`;
    SHOW command denied to user 'a'@'h' for table `shop`.`t`                GRANT SELECT ON `shop`.* TO `a`@`%`;

The account is what CURRENT_USER() says: the host of a refusal may be the client's, and no account of it may be there.
Where nobody could ask, the name goes without a host, which means '%'. A table's database is granted on: a table need
not be there, and only CREATE is granted on one that is not. Nothing is guessed: a text of another form, a table
without its database, or a right that is no privilege of tables, gives no statement.
"""

import re

from millrace.codes import CATALOGUE

_NEEDED = re.compile(r"you need \(at least one of\) the (?P<rights>[A-Z_, ]+?) privilege\(s\)")
_DATABASE = re.compile(r"Access denied for user '(?P<user>.*)'@'.*' to database '(?P<database>.*)'")
_TABLE = re.compile(
    r"(?P<rights>[A-Z][A-Z, ]*) command denied to user '(?P<user>.*)'@'.*' for table (?P<database>`.*`)\.`.*`"
)
_TOO_MUCH = ("SUPER", "ALL PRIVILEGES")  # would do, and far more
# as a refusal names them, and as GRANT does
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


def privilege_fix(code: str, text: str, *, account: str = "", user: str = "") -> str:
    """The fix of ``code`` for a refusal in these words: the GRANT of what lacks, then all that is needed.

    ``account`` is what CURRENT_USER() said, like ``a@%``; ``user`` the name alone, for texts that tell none.
    """
    grant, needed = _grant_for(text, account, user), CATALOGUE[code].fix
    return f"{grant} (In all: {needed.rstrip('.')})" if grant else needed


def grantee(account: str, user: str) -> str:
    """Whom to grant: what CURRENT_USER() said, where it was asked; else ``user``, whose host is '%' then.

    A name may hold an @, a host none.
    """
    name, at, host = account.rpartition("@")
    return f"{_quoted(name)}@{_quoted(host)}" if at else _quoted(user)


def _grant_for(text: str, account: str, user: str) -> str:
    if (found := _NEEDED.search(text)) is not None:
        rights = [right.strip() for right in found["rights"].split(",")]
        right = next((right for right in rights if right not in _TOO_MUCH), rights[0])
        whom = grantee(account, user) if account or user else "the account of the set document"
        return f"GRANT {right} ON *.* TO {whom};"
    if (found := _DATABASE.search(text)) is not None:
        whom = grantee(account, found["user"])
        return f"GRANT ALL PRIVILEGES ON {_quoted(found['database'])}.* TO {whom};"
    if (found := _TABLE.search(text)) is not None:
        lacking = [right.strip() for right in found["rights"].split(",")]
        if all(right in _OF_TABLES for right in lacking):
            rights = [_OF_TABLES[right] for right in lacking]
            whom = grantee(account, found["user"])
            return f"GRANT {', '.join(rights)} ON {found['database']}.* TO {whom};"
    return ""


def _quoted(name: str) -> str:
    return f"`{name.replace('`', '``')}`"
