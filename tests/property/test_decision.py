"""The gap of a decision, for any GTID sets of both flavours."""

from hypothesis import given
from hypothesis import strategies as st

from millrace.schemas.gtid import Flavour, GtidPosition, GtidSet, MariadbGtidSet, parse_gtid
from millrace.schemas.progress import Progress
from millrace.schemas.requests.decision import Approval, Decision, DecisionKind, is_forward

UUID = "3e11fa47-71ca-11e1-9e33-c80aa9429562"
NUMBERS = st.frozensets(st.integers(1, 12), min_size=1)
LAST = st.dictionaries(st.integers(0, 2), st.tuples(st.integers(1, 2), st.integers(1, 9)))


def decided(before: Progress, after: GtidPosition) -> Decision:
    """A decision on ``before``."""
    return Decision(
        id="d",
        kind=DecisionKind.RESET_POSITION,
        task="shop",
        before=before,
        after=after,
        approval=Approval("ann@db-ops", "why", 0),
    )


def mysql_set(numbers: frozenset[int]) -> GtidSet:
    """These numbers of one source."""
    return GtidSet.parse(",".join(f"{UUID}:{number}" for number in numbers))


def mariadb_set(last: dict[int, tuple[int, int]]) -> MariadbGtidSet:
    """The last transaction of each domain."""
    return MariadbGtidSet.parse(",".join(f"{d}-{s}-{n}" for d, (s, n) in last.items()))


@given(NUMBERS, NUMBERS)
def test_mysql_gap_is_exactly_what_the_decision_adds(
    known: frozenset[int], more: frozenset[int]
) -> None:
    """The missing and the delivered transactions are disjoint, and together they are the result."""
    before, after = Progress(mysql_set(known), None, 3), mysql_set(known | more)
    found = decided(before, after)
    assert is_forward(before, after)
    missing = GtidSet.parse(found.missing)
    assert (missing & mysql_set(known)).is_empty
    assert missing | mysql_set(known) == after
    gtid = parse_gtid(Flavour.MYSQL, found.gtid)
    assert after.covers(gtid)
    assert before.gtid_set.covers(gtid) == (not found.missing)


@given(LAST, LAST)
def test_mariadb_gap_names_every_domain_that_moves(
    known: dict[int, tuple[int, int]], later: dict[int, tuple[int, int]]
) -> None:
    """A domain that does not move is not named; the gap record's transaction is not delivered before."""
    moved = {
        domain: last
        for domain, last in later.items()
        if domain not in known or last[1] > known[domain][1]
    }
    before, after = Progress(mariadb_set(known), None, 3), mariadb_set(known | moved)
    if after.is_empty:
        return
    found = decided(before, after)
    assert is_forward(before, after)
    named = {part.split()[-1] for part in found.missing.split(", ") if part}
    assert named == {f"{domain}-{server}-{seq}" for domain, (server, seq) in moved.items()}
    assert before.gtid_set.covers(parse_gtid(Flavour.MARIADB, found.gtid)) == (not moved)
