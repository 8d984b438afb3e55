"""Writes a set's heartbeat row on its primary (``heartbeat`` in the set document), so that an idle set has commits.

    CREATE TABLE <database>.heartbeat (
        set_name    the set's name, the key
        worker      host:process of the worker that wrote it
        sequence    1, 2, 3, …
        written_at  the server's clock
    )

An idle set commits nothing: then a stalled replica looks like one that has everything, and the published progress stays
in a binlog file that the source will purge. With a commit in every interval, the position of the primary moves.

The row is written only on the one member that answers and is no replica, and only while its read_only is off. The
first is asked in the same session just before, the second is part of the statement. Two workers that hold the set's
stream write one row in turn: a row that is younger than most of an interval is left as it is, which logs nothing.

Guarantees: no error ends the thread or a task; ``warning`` has the last one (MR-1047). Not done here: measuring lag
(``lag`` needs no row: it samples the primary's position).
"""

import os
import socket
import threading
from collections.abc import Callable, Sequence

from millrace.codes import CATALOGUE
from millrace.drivers.mysql.connection import MySqlSession
from millrace.drivers.mysql.errors import NO_DATABASE, NO_TABLE
from millrace.drivers.mysql.grants import Role, as_grant_pattern, grantee, needed_grants
from millrace.drivers.mysql.members import ask_replications
from millrace.errors import Fatal, MillraceError, Retryable
from millrace.log import get_logger
from millrace.producer.source.choose.judge import Look
from millrace.producer.source.connection import Login, connect_member
from millrace.schemas.documents.model import HEARTBEAT_TABLE, Member, SetDocument
from millrace.schemas.gtid import Flavour
from millrace.schemas.sql.quoting import quoted, table_name

TIMEOUT_S = 2.0  # of a statement; a stop waits for it
FIRST_LOOK_S = 0.1  # until the members have been asked once
RETRY_S = 5.0  # at most, after an error
FRESH_SHARE = 0.75  # of the interval: a younger row is another worker's
WORKER_CHARACTERS_MAX = 255
_REFUSED = "MR-1005"

log = get_logger("producer.source.heartbeat")


class Heartbeat:
    """A thread that writes the row, from ``start`` to ``stop``, if the set's document asks for it.

    ``looks`` returns the last look at each member.
    """

    def __init__(
        self, document: SetDocument, login: Login, looks: Callable[[], Sequence[Look]]
    ) -> None:
        self._document = document
        self._login = login
        self._looks = looks
        self._interval_s = document.heartbeat.interval_s
        self._table = table_name(document.heartbeat.database, HEARTBEAT_TABLE).decode()
        worker = f"{socket.gethostname()}:{os.getpid()}"
        self._worker = worker[-WORKER_CHARACTERS_MAX:]
        self._session: MySqlSession | None = None
        self.warning = ""
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"heartbeat {document.name}")

    def start(self) -> None:
        if self._document.heartbeat.database:
            self._thread.start()

    def stop(self) -> None:
        """End the thread; it may wait for an answer of the server. Call it once."""
        self._stop.set()
        if self._thread.ident is not None:
            self._thread.join()

    def _run(self) -> None:
        delay_s = 0.0
        while not self._stop.wait(delay_s):
            looks = self._looks()
            if not looks:
                delay_s = FIRST_LOOK_S
                continue
            try:
                self._beat(find_primary(looks))
                delay_s = self._interval_s
                self._note("")
            except MillraceError as error:
                explained = self._explained(error)
                self._note(f"{explained}. {explained.fix}")
                self._close()
                delay_s = min(self._interval_s, RETRY_S)
        self._close()

    def _beat(self, primary: Member) -> None:
        """Write the row, and create the table first if it is missing. Errors: MR-1047 and those of ``connection``."""
        session = self._session
        if session is None or session.member != primary:
            session = self._connect(primary)
        if ask_replications(session):
            raise Retryable("MR-1047", f"{primary} has become a replica", member=primary)
        (row,) = session.named("SELECT @@GLOBAL.read_only AS is_read_only")
        if str(row["is_read_only"]) != "0":
            raise Retryable("MR-1047", f"{primary} is read_only", member=primary)
        try:
            self._write(session)
        except Fatal as error:
            if error.errno != NO_TABLE:
                raise
            session.named(_CREATE.format(table=self._table))
            log.info("heartbeat table created", member=str(primary), table=self._table)
            self._write(session)

    def _write(self, session: MySqlSession) -> None:
        fresh_us = round(FRESH_SHARE * self._interval_s * 1e6)
        session.named(
            _UPSERT.format(table=self._table),
            (self._document.name, self._worker, fresh_us, fresh_us, self._worker, fresh_us),
        )

    def _connect(self, primary: Member) -> MySqlSession:
        self._close()
        session = connect_member(primary, self._login, timeout_s=TIMEOUT_S)
        self._session = session
        session.named(_SETTINGS)
        return session

    def _close(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            session.close()

    def _explained(self, error: MillraceError) -> Retryable:
        """MR-1047 with the fix for the cause."""
        if error.code == "MR-1047" and isinstance(error, Retryable):
            return error
        fix = CATALOGUE["MR-1047"].fix
        if error.errno == NO_DATABASE or error.code == _REFUSED:
            database = self._document.heartbeat.database
            create = (
                f"CREATE DATABASE {quoted(database).decode()}; "
                if error.errno == NO_DATABASE
                else ""
            )
            account = self._session.account() if self._session is not None else ""
            to = grantee(account, self._login.user)
            (needed,) = needed_grants(Role.HEARTBEAT, Flavour.MYSQL, (as_grant_pattern(database),))
            fix = f"{create}{needed.sql(to)}"
        return Retryable("MR-1047", str(error), fix=fix)

    def _note(self, warning: str) -> None:
        if warning and warning != self.warning:
            log.warning("heartbeat row not written", set=self._document.name, error=warning)
        self.warning = warning


def find_primary(looks: Sequence[Look]) -> Member:
    """The one member that answered and is no replica. Retryable MR-1047 if there is none, or more than one."""
    primaries = [
        look.member for look in looks if look.pulse.error is None and look.pulse.is_primary
    ]
    if len(primaries) != 1:
        found = " and ".join(map(str, primaries)) or "no member"
        raise Retryable("MR-1047", f"{found} could be the primary")
    return primaries[0]


# A statement that waits for a lock must not be executed later, when the member is no primary any more.
_SETTINGS = "SET SESSION time_zone = '+00:00', lock_wait_timeout = 1, innodb_lock_wait_timeout = 1"
_CREATE = """
CREATE TABLE IF NOT EXISTS {table} (
    set_name VARCHAR(63) CHARACTER SET ascii COLLATE ascii_bin NOT NULL PRIMARY KEY,
    worker VARCHAR(255) CHARACTER SET utf8mb4 NOT NULL,
    sequence BIGINT UNSIGNED NOT NULL,
    written_at TIMESTAMP(6) NOT NULL DEFAULT CURRENT_TIMESTAMP(6)
)"""
_IS_DUE = "ABS(TIMESTAMPDIFF(MICROSECOND, written_at, NOW(6))) >= %s"
_UPSERT = f"""
INSERT INTO {{table}} (set_name, worker, sequence, written_at)
SELECT %s, %s, 1, NOW(6) FROM DUAL WHERE @@GLOBAL.read_only = 0
ON DUPLICATE KEY UPDATE
    sequence = IF({_IS_DUE}, sequence + 1, sequence),
    worker = IF({_IS_DUE}, %s, worker),
    written_at = IF({_IS_DUE}, NOW(6), written_at)"""  # assigned last: the others compare with it
