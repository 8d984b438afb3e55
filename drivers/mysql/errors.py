"""The errors of servers and of the driver, by kind. Each half gives a kind its code; both retry the same kinds.

Numbers: MySQL's ``mysqld_error.h`` and ``errmsg.h`` (2000 to 2999, of clients), MariaDB's ``mysqld_error.h`` (1900 to
1999 and from 4000). Those below 100 come from the file layer.

Not done here: fixes, and errors of a dump (``drivers.mysql.dump_errors``).
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, auto


@dataclass(frozen=True, slots=True)
class ServerError:
    """An error of a server; number 0 if the driver had no answer of one."""

    number: int
    text: str


class Kind(Enum):
    # no server answers, it starts or stops, or it is no working member of its cluster
    UNAVAILABLE = auto()
    LOST = auto()  # the connection
    READ_ONLY = auto()
    LIMITED = auto()  # connections, threads, memory
    LOCKED = auto()
    DISK_FULL = auto()
    LOGIN_REFUSED = auto()
    NO_TLS = auto()
    PRIVILEGE_MISSING = auto()
    CONFLICT = auto()  # with another row
    NO_TABLE = auto()
    NO_COLUMN = auto()
    PACKET_TOO_LARGE = auto()
    OTHER = auto()

    @property
    def is_transient(self) -> bool:
        """Whether the same statement may succeed later."""
        return self in _TRANSIENT


_TRANSIENT = frozenset(
    {Kind.UNAVAILABLE, Kind.LOST, Kind.READ_ONLY, Kind.LIMITED, Kind.LOCKED, Kind.DISK_FULL}
)
# errors of a server itself, not of a row or statement
OF_SERVERS = _TRANSIENT | {Kind.LOGIN_REFUSED, Kind.PRIVILEGE_MISSING}


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorCodes:
    """The codes of one half. ``certificate``: it can't be verified; ``login``: TLS is missing, or a package.

    ``place``: the name of the server in an error's context. ``is_of_members``: each error names its server, not only
    that of a login.
    """

    kinds: Mapping[Kind, str]
    certificate: str
    login: str
    place: str
    is_of_members: bool = False


APPLY_CODES = ErrorCodes(
    kinds={
        Kind.UNAVAILABLE: "MR-5001",
        Kind.LOST: "MR-5001",
        Kind.READ_ONLY: "MR-5003",
        Kind.LIMITED: "MR-5004",
        Kind.LOCKED: "MR-5005",
        Kind.DISK_FULL: "MR-5006",
        Kind.LOGIN_REFUSED: "MR-5002",
        Kind.NO_TLS: "MR-5009",
        Kind.PRIVILEGE_MISSING: "MR-5007",
        Kind.CONFLICT: "MR-5010",
        Kind.NO_TABLE: "MR-5012",
        Kind.NO_COLUMN: "MR-5013",
        Kind.PACKET_TOO_LARGE: "MR-5014",
        Kind.OTHER: "MR-5011",
    },
    certificate="MR-5009",
    login="MR-5002",
    place="server",
)

CAPTURE_CODES = ErrorCodes(
    kinds={kind: "MR-1001" if kind.is_transient else "MR-1007" for kind in Kind}
    | {
        Kind.LOST: "MR-1006",
        Kind.LOGIN_REFUSED: "MR-1002",
        Kind.NO_TLS: "MR-1004",
        Kind.PRIVILEGE_MISSING: "MR-1005",
    },
    certificate="MR-1003",
    login="MR-1008",
    place="member",
    is_of_members=True,
)

FOREIGN_KEY = frozenset({1216, 1217, 1451, 1452, 1557, 1761, 1762})
ACCESS_DENIED = 1045
NO_DATABASE = 1049
NO_COLUMN = 1054
NO_TABLE = 1146
MISSING_PRIVILEGE = 1227
WRONG_TEXT = 1366
COMMAND_FAILED = 1220  # SHOW BINLOG EVENTS; its text has the reason
TABLE_CHANGED = 1412  # since the snapshot of the transaction began
SIGNALED = 1644  # by SIGNAL in a routine
LOST_IN_ANSWER = 2013
# MySQL refuses a SELECT from PROCESSLIST and INNODB_TRX while any session executes a text with a 4-byte character
NOT_CONVERTED = 3854

_NUMBERS: dict[Kind, frozenset[int]] = {
    Kind.UNAVAILABLE: frozenset(
        # 0: of the driver, without a number. Start, stop, killed, timed out, interrupted
        {0, 1053, 1152, 1156, 1158, 1159, 1160, 1161, 1180, 1184, 1317, 1927, 1969}
        | {2002, 2003, 2014, 3024, 3032, 3168, 3169, 4031}
        | {1129}  # the host is blocked until FLUSH HOSTS
        # Galera, NDB, or Group Replication while its primary changes or it stops
        | {1047, 1297, 3100, 3781, 3782, 3783, 3796, 3797, 3798, 3799, 4094}
    ),
    Kind.LOST: frozenset({2006, LOST_IN_ANSWER, 2055}),
    Kind.READ_ONLY: frozenset({1036, 1290, 1792, 1836, 1874, 3989}),
    Kind.LIMITED: frozenset(
        {1040, 1203, 1226}
        | {1135, 1206, 1587, 1637}  # threads, memory for locks, files, target transactions
        | {5, 1037, 1041, 1998, 3015, 3044, 3950, 3985, 4081, 4082}  # memory
    ),
    Kind.LOCKED: frozenset(
        {1205, 1213, 1689, 3572}
        | {1020, TABLE_CHANGED}  # what the transaction has read was changed since
        | {1964, 3101}  # at commit: the preceding one failed, or another member committed first
    ),
    Kind.DISK_FULL: frozenset({3, 20, 1021, 1026, 1114, 1878, 3675, 3884}),
    Kind.LOGIN_REFUSED: frozenset(
        {ACCESS_DENIED, 1130, 1251, 1275, 1698, 1820, 1862, 2061, 3118, 3955, 4151}
    ),
    Kind.NO_TLS: frozenset({2026}),
    Kind.PRIVILEGE_MISSING: frozenset({1044, 1142, 1143, 1227, 1370, 1410, 3530}),
    Kind.CONFLICT: frozenset({1022, 1062, 1169, 1586} | FOREIGN_KEY),
    Kind.NO_TABLE: frozenset({NO_DATABASE, 1051, NO_TABLE}),
    Kind.NO_COLUMN: frozenset({NO_COLUMN}),
    Kind.PACKET_TOO_LARGE: frozenset({1153}),
}
_KINDS = {number: kind for kind, numbers in _NUMBERS.items() for number in numbers}
_FILES = frozenset({1, 1030})  # can't create a file, engine failed; only the text names a full disk
_FULL = re.compile(r"(?:Got error|\(OS errno|\(Errcode:) 28\b|No space left on device")


def kind_of(error: ServerError, *, in_session: bool = False) -> Kind:
    """The kind of an error. In a session MariaDB answers a dump without its privilege as it answers a refused login."""
    if in_session and error.number == ACCESS_DENIED:
        return Kind.PRIVILEGE_MISSING
    if error.number in _FILES and _FULL.search(error.text):
        return Kind.DISK_FULL
    return _KINDS.get(error.number, Kind.OTHER)


def server_error(error: Exception) -> ServerError:
    """The number and text of an error of PyMySQL or of its socket; number 0 if it has none."""
    if isinstance(error, OSError):
        return ServerError(0, error.strerror or str(error))
    first = error.args[0] if error.args else None
    text = str(error.args[-1]) if error.args else type(error).__name__
    return ServerError(first if isinstance(first, int) else 0, text)
