"""Words of messages: a count with its noun, near names, and names in the commands of a fix. Pure.

The places of a fix that an operator can paste:

    `millrace task resume TASK`                        TASK       the task
    `millrace set show SET`                            SET        the set that the task reads or writes
    `millrace topic verify TOPIC`                      TOPIC      its topic
    `millrace conflict show TASK N`                    N          a seq
    `millrace task load TASK --tables DB.TABLE`        DB.TABLE   a table
    `millrace unsafe skip-gtid TASK --gtid GTID`       GTID       a source transaction

Only words of commands in backquotes are replaced: SET is a word of SQL, too. A place whose name is not known stays.
"""

import re
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from shlex import quote


def counted(count: int, singular: str, plural: str = "") -> str:
    """Such as "1,234 rows". ``plural`` only if it is not ``singular`` with an s, as of "file is missing"."""
    noun = singular if count == 1 else plural or f"{singular}s"
    return f"{count:,} {noun}"


NEAR_MAX = 3


def near_names(name: str, known: Iterable[str]) -> str:
    """Such as "; did you mean shop.Orders or shop.order?"; "" if none is near. The case does not matter."""
    folded = {one.casefold(): one for one in sorted(known)}
    near = [folded[one] for one in get_close_matches(name.casefold(), folded, n=NEAR_MAX)]
    return f"; did you mean {' or '.join(near)}?" if near else ""


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
