"""Chooses a member by fresh answers of the whole set, and keeps what was found about each member for the status.

The first choice waits as long as the servers need. A choice while a stream runs has ``LIVE_ANSWER_S`` for each answer:
a frozen member must not delay the switch to another.
"""

from collections.abc import Callable, Collection, Iterable, Sequence
from functools import partial

from millrace.drivers.mysql import members
from millrace.drivers.mysql.members import MemberFacts, ask_identity
from millrace.errors import Fatal, MillraceError, Retryable
from millrace.log import get_logger
from millrace.producer.source.choose.choice import Choice, Preferences, Verdict, choose, verdicts_of
from millrace.producer.source.choose.judge import Look
from millrace.producer.source.connection import Login, connect_member
from millrace.schemas.documents.model import Directives, Member, SetDocument
from millrace.schemas.gtid import Flavour, GtidPosition
from millrace.schemas.stages import MemberView

LIVE_ANSWER_S = 1.5

log = get_logger("producer.source")


class Chooser:
    """Chooses members of one set. Any thread may call it."""

    def __init__(
        self, document: SetDocument, login: Login, read_directives: Callable[[str], Directives]
    ) -> None:
        self._document = document
        self._login = login
        self._read_directives = read_directives
        self.directives = Directives()  # the last known ones
        self._verdicts: tuple[Verdict, ...] = ()

    def renew_directives(self) -> Directives:
        """Ask for the operator's wishes; the last known ones while ZooKeeper is away."""
        try:
            self.directives = self._read_directives(self._document.name)
        except Retryable as error:
            log.debug("directives unknown", error=error)
        return self.directives

    def first(self, wanted: GtidPosition | None, *, avoided: Collection[Member]) -> Choice:
        preferences = Preferences(avoided, (), self.renew_directives())
        facts = ask_members(self._document.members, self._login, wanted=wanted)
        return self._keep(choose(facts, wanted=wanted, preferences=preferences))

    def next(
        self,
        wanted: GtidPosition,
        *,
        avoided: Collection[Member],
        looks: Sequence[Look],
        is_first: bool = False,
    ) -> Choice:
        """The choice for readers that continue after ``wanted``. Errors: see ``choose``.

        ``is_first``: ``avoided`` members are not even asked, because they have just failed.
        """
        asked = [
            member for member in self._document.members if not is_first or member not in avoided
        ]
        facts = list(ask_members(asked, self._login, wanted=wanted, timeout_s=LIVE_ANSWER_S))
        if is_first:
            error = Retryable("MR-1006", "it was left just now")
            facts += [MemberFacts(member, error=error) for member in avoided]
        max_lag_s = self._document.upstream.max_lag_s
        late = {look.member for look in looks if (look.lag_s or 0.0) > max_lag_s}
        preferences = Preferences(avoided, late, self.directives)
        return self._keep(choose(facts, wanted=wanted, preferences=preferences, is_live=True))

    def look_again(self, wanted: GtidPosition | None) -> None:
        """Renew what is known about each member. An error is only logged."""
        facts = ask_members(
            self._document.members, self._login, wanted=wanted, timeout_s=LIVE_ANSWER_S
        )
        try:
            self._verdicts = verdicts_of(
                facts, wanted=wanted, directives=self.directives, is_live=False
            )
        except MillraceError as error:
            log.info("members not judged", error=error)

    def views(self, looks: Sequence[Look], *, chosen: Member | None) -> tuple[MemberView, ...]:
        """Every member, by the last answers."""
        by_member = {look.member: look for look in looks}
        known = {verdict.member: verdict for verdict in self._verdicts}
        return tuple(
            _view(member, by_member.get(member), known.get(member), is_chosen=member == chosen)
            for member in self._document.members
        )

    def kept_s(self) -> float | None:
        """How long the members keep their binlogs, the most patient one counts; None: without a limit, or unknown."""
        known = [verdict.kept_s for verdict in self._verdicts if verdict.is_admissible]
        return None if not known or None in known else max(each for each in known if each)

    def _keep(self, choice: Choice) -> Choice:
        self._verdicts = choice.verdicts
        return choice


def _view(
    member: Member, look: Look | None, verdict: Verdict | None, *, is_chosen: bool
) -> MemberView:
    error = look.pulse.error if look is not None else verdict.error if verdict else None
    reasons = verdict.reasons if verdict is not None else ()
    role = verdict.role if verdict is not None else "unknown"
    if look is not None and error is None:
        role = "primary" if look.pulse.is_primary else "replica"
    missing = look.missing_count if look is not None else None
    if look is None and verdict is not None:
        missing = verdict.missing_count
    why = str(error) if error is not None else "; ".join(map(str, reasons))
    return MemberView(
        host=member.host,
        port=member.port,
        role=role,
        reachable=error is None,
        lag_s=None if look is None or (lag_s := look.shown_lag_s) is None else round(lag_s, 1),
        missing=missing,
        admissible=error is None and not reasons,
        why=why or ("chosen" if is_chosen else "admissible"),
        chosen=is_chosen,
    )


def ask_members(
    names: Sequence[Member], login: Login, *, wanted: GtidPosition | None, timeout_s: float = 0.0
) -> tuple[MemberFacts, ...]:
    """Query all members at the same time; the result has the same order. ``timeout_s``: for each answer."""
    connect = partial(connect_member, login=login, timeout_s=timeout_s)
    return members.ask_members(names, connect, wanted=wanted)


def ask_flavour(names: Iterable[Member], login: Login) -> Flavour:
    """The flavour of the first member that answers; if none does, raise an error, preferably a retryable one."""
    errors: list[MillraceError] = []
    for member in names:
        try:
            with connect_member(member, login) as connection:
                return ask_identity(connection).flavour
        except MillraceError as error:
            errors.append(error)
    if not errors:
        raise Fatal("MR-1020", "the set has no members")
    raise next((error for error in errors if not isinstance(error, Fatal)), errors[-1])
