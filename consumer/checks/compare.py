"""Checks what `compare: {every_h: …}` needs. Apart: comparisons do not need it.

These are the rights on the source, and packets that are long enough on both sides.

The rules are those of a comparison (``consumer.compare``). A finding is a warning: the task runs without it.
"""

from collections.abc import Iterator
from contextlib import ExitStack

from millrace.checks.requirement import Area, Requirement, Subject
from millrace.consumer.checks.load import RowsUse
from millrace.consumer.compare.members import choose_origin
from millrace.consumer.load.plan import missing_rights
from millrace.consumer.load.tables import Admission
from millrace.consumer.tables.digest import PACKET_BYTES_MIN
from millrace.drivers.mysql.connection import MySqlSession, connect, text_of
from millrace.drivers.mysql.grants import Role
from millrace.drivers.mysql.primary import primary_member

WAIT_S = 5.0  # for a replica


def check_compare(use: RowsUse) -> Iterator[Requirement]:
    """Ask both sets. Errors: see ``consumer.compare.members`` and ``drivers.mysql.primary``."""
    subject = Subject(Area.SOURCE, f"comparison of {use.task.name}")
    with ExitStack() as opened:
        member = choose_origin(use.source, lambda: use.directives, wait_s=WAIT_S)
        source = connect(member.source)
        opened.callback(source.close)
        target = connect(primary_member(use.target, for_writing=False))
        opened.callback(target.close)
        yield subject.ok("a member to read", member.name)
        admission = Admission.of(use.source, use.capture, use.task)
        if missing := missing_rights(source, admission, Role.COMPARE):
            yield subject.warn("MR-5007", "privileges", found=str(missing), fix=missing.fix)
        else:
            yield subject.ok("privileges", "sufficient")
        for session in (source, target):
            yield _judge_packet(subject, session)


def _judge_packet(subject: Subject, session: MySqlSession) -> Requirement:
    ((found,),) = session.query("SELECT @@max_allowed_packet")
    what = f"max_allowed_packet of {session.endpoint.name}"
    if int(text_of(found)) < PACKET_BYTES_MIN:
        wanted = f"{PACKET_BYTES_MIN} or more"
        return subject.warn("MR-5121", what, found=text_of(found), wanted=wanted)
    return subject.ok(what, text_of(found))
