"""Finds what was logged before a binlog file that an operator names: members name their files alike."""

from collections.abc import Iterable

from drivers.mysql.members import ask_identity, ask_replications
from drivers.mysql.start_file import list_binlog_files, previous_gtids
from millrace.errors import Fatal, MillraceError
from producer.source.connection import Login, connect_member
from schemas.documents.model import Member
from schemas.gtid import Flavour, GtidPosition


def find_position_before(
    file: str, members: Iterable[Member], login: Login, flavour: Flavour
) -> GtidPosition:
    """The GTIDs logged before ``file`` on the primary, or else on the first replica that has such a file.

    Fatal MR-1038 if no member that answers has it; if none answers, the error of the last one.
    """
    found: GtidPosition | None = None
    failure: MillraceError | None = None
    is_answered = False
    for member in members:
        try:
            with connect_member(member, login) as connection:
                is_answered = True
                if file not in list_binlog_files(connection):
                    continue
                before = previous_gtids(connection, flavour=flavour, file=file)
                server = ask_identity(connection).dialect
                if not ask_replications(connection, server):
                    return before
                found = found or before
        except MillraceError as error:
            failure = error
    if found is not None:
        return found
    if not is_answered and failure is not None:
        raise failure
    raise Fatal("MR-1038", f"no member has the binlog file {file}", file=file)
