"""Puts names into the commands of a fix, so that an operator can paste them. Pure.

    `millrace task resume TASK`                        TASK       the task
    `millrace set show SET`                            SET        the set that the task reads or writes
    `millrace topic verify TOPIC`                      TOPIC      its topic
    `millrace conflict show TASK N`                    N          a seq
    `millrace task load TASK --tables DB.TABLE`        DB.TABLE   a table
    `millrace unsafe skip-gtid TASK --gtid GTID`       GTID       a source transaction

Only words of commands in backquotes are replaced: SET is a word of SQL, too. A place whose name is not known stays.
"""

import re
from collections.abc import Mapping
from shlex import quote

PLACES: Mapping[str, str] = {
    "TASK": "task",
    "SET": "set",
    "TOPIC": "topic",
    "N": "seq",
    "DB.TABLE": "table",
    "GTID": "gtid",
}
_COMMAND = re.compile(r"`millrace [^`]*`")
_PLACE = re.compile(rf"(?<=[ =])({'|'.join(map(re.escape, PLACES))})(?=[ `])")


def with_names(fix: str, names: Mapping[str, object]) -> str:
    """The fix with all places filled whose names (the values of ``PLACES``) are in ``names`` and not empty."""

    def fill(place: re.Match[str]) -> str:
        name = str(names.get(PLACES[place[0]]) or "")
        return quote(name) if name else place[0]

    return _COMMAND.sub(lambda command: _PLACE.sub(fill, command[0]), fix)
