"""From a server's refusal, the GRANT that mends it: pure text, for the fix of an error.

    you need (at least one of) the SUPER, SLAVE MONITOR privilege(s) …     GRANT SLAVE MONITOR ON *.* TO `millrace`;
    Access denied for user 'a'@'%' to database 'shop'                       GRANT ALL PRIVILEGES ON `shop`.* TO 'a'@'%';
    SELECT command denied to user 'a'@'h' for table `shop`.`t`              GRANT SELECT ON `shop`.`t` TO `a`;

The host is told only where the server names that of the account; else it names the client's. Nothing is guessed: a
text of another form, or a table without its database, gives no statement.
"""

import re

from millrace.codes import CATALOGUE

_NEEDED = re.compile(r"you need \(at least one of\) the (?P<rights>[A-Z_, ]+?) privilege\(s\)")
_DATABASE = re.compile(
    r"Access denied for user (?P<account>'.*'@'.*') to database '(?P<database>.*)'"
)
_TABLE = re.compile(
    r"(?P<right>[A-Z ]+) command denied to user '(?P<user>.*)'@'.*' for table (?P<table>`.*`\.`.*`)"
)
_TOO_MUCH = ("SUPER", "ALL PRIVILEGES")  # would do, and far more


def privilege_fix(code: str, text: str, *, user: str = "") -> str:
    """The fix of ``code`` for a refusal in these words: the GRANT of what lacks, then all that is needed.

    ``user`` is the account's name, for texts that tell none.
    """
    grant, needed = _grant_for(text, user), CATALOGUE[code].fix
    return f"{grant} (In all: {needed.rstrip('.')}.)" if grant else needed


def _grant_for(text: str, user: str) -> str:
    if (found := _NEEDED.search(text)) is not None:
        rights = [right.strip() for right in found["rights"].split(",")]
        right = next((right for right in rights if right not in _TOO_MUCH), rights[0])
        account = _quoted(user) if user else "the account of the set document"
        return f"GRANT {right} ON *.* TO {account};"
    if (found := _DATABASE.search(text)) is not None:
        return f"GRANT ALL PRIVILEGES ON {_quoted(found['database'])}.* TO {found['account']};"
    if (found := _TABLE.search(text)) is not None:
        return f"GRANT {found['right']} ON {found['table']} TO {_quoted(found['user'])};"
    return ""


def _quoted(name: str) -> str:
    return f"`{name.replace('`', '``')}`"
