"""GTID sets against a plain model: a Python set of (uuid, tag, number) triples."""

from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from millrace.schemas.gtid import (
    Flavour,
    Gtid,
    GtidSet,
    MariadbGtid,
    MariadbGtidSet,
    parse_gtid,
    parse_gtid_set,
)
from millrace.schemas.gtid.binary import decode_previous_gtids

gtids = st.builds(
    Gtid,
    st.sampled_from([UUID(int=1), UUID(int=2), UUID(int=2**128 - 1)]),
    st.integers(1, 30),
    st.sampled_from(["", "blue", "_r2"]),
)
models = st.sets(gtids, max_size=40)
mariadb_gtids = st.builds(MariadbGtid, st.integers(0, 3), st.integers(1, 2), st.integers(1, 20))
positions = st.lists(mariadb_gtids, unique_by=lambda gtid: gtid.domain).map(MariadbGtidSet.of)


def members(gtid_set: GtidSet) -> set[Gtid]:
    """Return the GTIDs of the set."""
    return {
        Gtid(uuid, number, tag)
        for (uuid, tag), (start, stop) in gtid_set.intervals()
        for number in range(start, stop)
    }


@given(models)
def test_gtid_set_contains_exactly_its_gtids(model: set[Gtid]) -> None:
    """Membership and count match the model."""
    made = GtidSet.of(model)
    assert members(made) == model
    assert made.count == len(model)
    assert all(gtid in made for gtid in model)


@given(models, gtids)
def test_covers_is_membership(model: set[Gtid], gtid: Gtid) -> None:
    """A GTID is covered exactly if it is in the model."""
    assert GtidSet.of(model).covers(gtid) == (gtid in model)


@given(models, models)
def test_gtid_set_operators_match_python_sets(left: set[Gtid], right: set[Gtid]) -> None:
    """Union, difference, intersection, subset and equality agree with the model."""
    a, b = GtidSet.of(left), GtidSet.of(right)
    assert members(a | b) == left | right
    assert members(a - b) == left - right
    assert members(a & b) == left & right
    assert (a <= b) == (left <= right) == b.includes(a)
    assert (a == b) == (left == right)
    assert a.is_empty == (not left)


@given(models, gtids)
def test_advancing_adds_one_transaction(model: set[Gtid], gtid: Gtid) -> None:
    """Transactions may arrive in any order, and twice."""
    assert GtidSet.of(model).advanced(gtid) == GtidSet.of(model | {gtid})


@given(models, gtids, st.integers(0, 5))
def test_advancing_through_a_run_adds_every_transaction(
    model: set[Gtid], first: Gtid, more: int
) -> None:
    """The result equals that of adding the transactions one by one."""
    run = {Gtid(first.uuid, first.number + i, first.tag) for i in range(more + 1)}
    grown = GtidSet.of(model).advanced_through(first, first.number + more)
    assert grown == GtidSet.of(model | run)


TAGGED = 1  # of the form with tags, WL#15294


def _encoded(gtid_set: GtidSet) -> bytes:
    """The body of a PREVIOUS_GTIDS event; the form with tags is used only if a source has a tag."""
    by_source: dict[tuple[UUID, str], list[tuple[int, int]]] = {}
    for source, interval in gtid_set.intervals():
        by_source.setdefault(source, []).append(interval)
    tagged = any(tag for _, tag in by_source)
    head = TAGGED << 56 | len(by_source) << 8 | TAGGED if tagged else len(by_source)
    out = [head.to_bytes(8, "little")]
    for (uuid, tag), intervals in by_source.items():
        out.append(uuid.bytes)
        if tagged:
            out += [bytes([2 * len(tag)]), tag.encode()]
        out.append(len(intervals).to_bytes(8, "little"))
        out += [number.to_bytes(8, "little") for interval in intervals for number in interval]
    return b"".join(out)


@given(models)
def test_text_and_bytes_round_trip_and_are_canonical(model: set[Gtid]) -> None:
    """Equal sets have the same text, and both forms give the value back."""
    made = GtidSet.of(model)
    assert GtidSet.parse(str(made)) == made
    assert decode_previous_gtids(_encoded(made)) == made
    assert str(parse_gtid_set(Flavour.MYSQL, str(made).upper().replace(":", " : "))) == str(made)
    assert hash(GtidSet.parse(str(made))) == hash(made)


@given(gtids)
def test_one_gtid_round_trips(gtid: Gtid) -> None:
    """The form is text."""
    assert parse_gtid(Flavour.MYSQL, str(gtid)) == gtid


@given(positions, mariadb_gtids)
def test_mariadb_position_covers_each_domain_up_to_its_last_gtid(
    position: MariadbGtidSet, gtid: MariadbGtid
) -> None:
    """The server id does not matter. Advancing replaces the domain's last GTID and covers the new one."""
    last = {known.domain: known.sequence for known in position.gtids()}
    assert position.covers(gtid) == (gtid.sequence <= last.get(gtid.domain, 0))
    if not position.covers(gtid):
        grown = position.advanced(gtid)
        assert grown.last(gtid.domain) == gtid
        assert grown.includes(position)
        assert not position.includes(grown)


@given(positions, positions)
def test_mariadb_positions_include_each_other_by_domain(
    left: MariadbGtidSet, right: MariadbGtidSet
) -> None:
    """The relation is reflexive and equals a comparison by domain."""
    assert left.includes(left)
    assert (right <= left) == all(left.covers(gtid) for gtid in right.gtids())


@given(positions)
def test_mariadb_position_round_trips(position: MariadbGtidSet) -> None:
    """The text is sorted by domain."""
    assert MariadbGtidSet.parse(str(position)) == position
    assert parse_gtid_set(Flavour.MARIADB, f" {position} ") == position
