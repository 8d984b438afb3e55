"""One short question to a member: its role and position. The watch asks it every second.

Needs REPLICATION CLIENT. A few statements on a connection that stays open.
"""

from dataclasses import dataclass

from millrace.drivers.mysql.connection import MySqlSession, NamedRow
from millrace.drivers.mysql.members import Identity, ask_position, ask_replications, greatest_lag_s
from millrace.errors import MillraceError
from millrace.schemas.documents.model import Member
from millrace.schemas.gtid import GtidPosition


@dataclass(frozen=True, slots=True, kw_only=True)
class Pulse:
    """The answer of a member. Either ``error`` or the other fields are set."""

    member: Member
    error: MillraceError | None = None
    server: str = ""
    is_primary: bool = False
    seconds_behind: float | None = None  # the server's own opinion; decides nothing alone
    position: GtidPosition | None = None
    file: str = ""  # where its binlog ends
    pos: int | None = None


def ask_pulse(connection: MySqlSession, identity: Identity) -> Pulse:
    position = ask_position(connection)
    replications = ask_replications(connection)
    end: NamedRow = next(iter(connection.named(connection.version.binlog_status)), {})
    return Pulse(
        member=connection.member,
        server=identity.server,
        is_primary=not replications,
        seconds_behind=greatest_lag_s(replications) if replications else None,
        position=position,
        file=str(end.get("File") or ""),
        pos=int(end.get("Position") or 0),
    )
