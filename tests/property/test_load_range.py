"""A load that reads rows at any moments, then the topic by the rules of its range: the target ends as the source."""

import random

from hypothesis import given
from hypothesis import strategies as st

from millrace.consumer.target.load_range import WHOLE, Copied, Fate, LoadRange, tables_of_stream
from millrace.consumer.target.loads import (
    COPIED,
    COPIES,
    FOLLOWS,
    WAITS,
    LoadStream,
    LoadTable,
    Reach,
)
from millrace.consumer.target.progress import Mark
from millrace.schemas.gtid import Flavour, parse_gtid, parse_gtid_set
from tests.kit.apply.topic import UUID

TRANSACTIONS = 40
CHUNKED, EXACT, SHORT = ("shop", "chunked"), ("shop", "exact"), ("shop", "short")
Change = tuple[tuple[str, str], int, int | None, int | None]  # table, key, value before and after


def _set(flavour: Flavour, last: int) -> str:
    if not last:
        return ""
    return f"0-1-{last}" if flavour is Flavour.MARIADB else f"{UUID}:1-{last}"


def _gtid(flavour: Flavour, number: int) -> str:
    return f"0-1-{number}" if flavour is Flavour.MARIADB else f"{UUID}:{number}"


class _Source:
    """Random transactions on three tables; ``states[n]`` has the rows after transaction n."""

    def __init__(self, chance: random.Random) -> None:
        self.transactions: list[list[Change]] = []
        self.states: list[dict[tuple[tuple[str, str], int], int]] = [{}]
        for _ in range(TRANSACTIONS):
            rows, made = dict(self.states[-1]), list[Change]()
            for _ in range(chance.randint(1, 4)):
                table, key = chance.choice([CHUNKED, EXACT, SHORT]), chance.randint(0, 5)
                before = rows.pop((table, key), None)
                after = (
                    None if before is not None and chance.random() < 0.3 else chance.randint(0, 99)
                )
                if after is not None:
                    rows[table, key] = after
                made.append((table, key, before, after))
            self.transactions.append(made)
            self.states.append(rows)


@given(st.integers(0, 2**32), st.sampled_from(Flavour))
def test_rows_read_at_any_moment_end_as_on_the_source(seed: int, flavour: Flavour) -> None:
    """Rows of chunks are from any moments, those of an exact table from one; a row that is applied plainly must fit."""
    chance = random.Random(seed)
    source = _Source(chance)
    begin = chance.randint(0, TRANSACTIONS)
    end = chance.randint(begin, TRANSACTIONS)
    covered, snapshot = (chance.randint(begin, end) for _ in range(2))
    target = {}
    for key in range(6):
        moment = source.states[chance.randint(covered, end)]
        if (CHUNKED, key) in moment:
            target[CHUNKED, key] = moment[CHUNKED, key]
        if (EXACT, key) in source.states[snapshot]:
            target[EXACT, key] = source.states[snapshot][EXACT, key]
    tables = [
        LoadTable(CHUNKED, FOLLOWS, Reach(_set(flavour, covered)), "PRIMARY", ""),
        LoadTable(EXACT, FOLLOWS, Reach("", exact=_set(flavour, snapshot)), "", ""),
    ]
    load = LoadStream(_set(flavour, begin), _set(flavour, end), flavour)
    range_ = tables_of_stream("task", tables, load).range
    assert range_ is not None
    for number in range(begin + 1, TRANSACTIONS + 1):
        gtid = parse_gtid(flavour, _gtid(flavour, number))
        for table, key, before, after in source.transactions[number - 1]:
            fate = range_.fate(table, gtid)
            if table == SHORT:
                assert fate is (Fate.SKIPPED if number <= end else Fate.APPLIED)
            if fate is Fate.SKIPPED or table == SHORT:
                continue
            if fate is Fate.APPLIED:
                assert target.get((table, key)) == before, (table, number)
            target.pop((table, key), None)
            if after is not None:
                target[table, key] = after
    last = {at: value for at, value in source.states[-1].items() if at[0] != SHORT}
    assert target == last


@given(st.sampled_from([WAITS, COPIES, COPIED, FOLLOWS]), st.integers(0, 3))
def test_each_table_is_applied_by_one_stream_at_most(state: str, batch: int) -> None:
    """Main leaves out exactly the tables that wait, are being copied, or follow with the side stream."""
    table = LoadTable(CHUNKED, state, Reach(""), "PRIMARY", "", batch)
    main, side = (
        tables_of_stream("task", [table], None),
        tables_of_stream("task#load", [table], None),
    )
    assert side.only is not None
    of_side, of_main = CHUNKED in side.only, CHUNKED not in main.elsewhere
    assert not (of_side and of_main)
    assert (of_side or of_main) == (state == FOLLOWS)
    assert tables_of_stream("task", [], None) == WHOLE


@given(st.integers(0, 9), st.integers(0, 9), st.sampled_from(Flavour))
def test_range_is_over_once_the_mark_is_past_its_end(end: int, at: int, flavour: Flavour) -> None:
    """The GTID set of the last `resolved` record before the mark counts."""
    range_ = LoadRange(parse_gtid_set(flavour, _set(flavour, end)), {})
    mark = Mark(at, at, _set(flavour, at), flavour)
    assert range_.is_over(mark) == (at >= max(end, 1))


def test_snapshot_of_a_source_without_gtids_is_exact() -> None:
    """Such as a dump that was restored without GTIDs: the set is empty, and no row of the topic is in it."""
    table = LoadTable(EXACT, FOLLOWS, Reach(""), "", "")
    range_ = tables_of_stream(
        "task", [table], LoadStream("", _set(Flavour.MYSQL, 5), Flavour.MYSQL)
    ).range
    assert range_ is not None
    assert range_.tables[EXACT] == Copied(parse_gtid_set(Flavour.MYSQL, ""), is_exact=True)
    assert range_.fate(EXACT, parse_gtid(Flavour.MYSQL, _gtid(Flavour.MYSQL, 1))) is Fate.APPLIED
