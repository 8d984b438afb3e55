"""A driver dies by SIGKILL at the fault points of a load: the next one continues, and each row is copied once."""

from collections.abc import Iterator

import pytest

from millrace.consumer.compare import Ends, compare_sets
from millrace.consumer.load import copy_order as order
from millrace.consumer.load import prepare
from millrace.consumer.target import loads
from millrace.schemas.documents import LoadRules
from tests.fixtures.load import load_rig, source_of_one
from tests.fixtures.servers import FLAVOURS, Pool
from tests.kit.apply.load_tables import COUNT, create_filled, definitions
from tests.kit.apply.loading import LoadRig, LocalCopier
from tests.kit.apply.local import endpoint_of
from tests.kit.forked import killed_at

NAME = "killed"
RULES = LoadRules(chunk_rows=200, parallel=1)
# one after the other, each in a separate run; snapshots are read first
KILLS = (
    (f"{prepare.AFTER_CREATE}:kill@3",),
    (f"{loads.AFTER_PLAN}:kill",),
    (f"{loads.AFTER_FOUND}:kill@2",),
    (f"{loads.BEFORE_CHUNK_COMMIT}:kill@9", f"{loads.AFTER_CHUNK_COMMIT}:kill@9"),
    (f"{loads.AFTER_CHUNK_COMMIT}:kill", f"{loads.AFTER_RESET}:kill"),
    (f"{loads.BEFORE_CHUNK_COMMIT}:kill", f"{loads.AFTER_TABLE}:kill@4"),
    (f"{loads.BEFORE_STREAM}:kill",),
    (f"{loads.AFTER_STREAM}:kill",),
)


# inside a table, around a chunk, and at the end; both flavours
SOON = (KILLS[0], KILLS[3], KILLS[4], KILLS[7])


@pytest.fixture
def rig(request: pytest.FixtureRequest, pool: Pool) -> Iterator[LoadRig]:
    """A source of one server with tables of each kind; flavours in turn."""
    source = source_of_one(pool, FLAVOURS[request.param % len(FLAVOURS)])
    with load_rig(pool, source, NAME) as made:
        create_filled(source, NAME)
        yield made


@pytest.mark.parametrize(
    ("rig", "kills"),
    [
        pytest.param(place, kills, id=kills[-1], marks=[] if kills in SOON else pytest.mark.chaos)
        for place, kills in enumerate(KILLS)
    ],
    indirect=["rig"],
)
@pytest.mark.guarantee("loaded")
def test_killed_load_continues_and_copies_each_row_once(
    rig: LoadRig, kills: tuple[str, ...]
) -> None:
    """Chunks that are copied stay; a snapshot that was read in part starts over."""
    for kill in kills:
        killed_at(kill, lambda: rig.run(rules=RULES))
    before = {key: table for key, table in rig.tables().items() if table.state == loads.COPIED}
    copier = LocalCopier()
    assert rig.run(copier, rules=RULES) is (kills[-1] != KILLS[-1][0])
    copied_again = {table.key for order in copier.orders for table in order.tables}
    assert not copied_again & before.keys()
    found = compare_sets(
        Ends(rig.endpoint_of_source(), endpoint_of(rig.target)),
        lambda database, _: database == NAME,
    )
    assert found.differences == []
    assert found.tables >= len(definitions(NAME))
    assert {table.state for table in rig.tables().values()} == {loads.FOLLOWS}


@pytest.mark.parametrize("rig", [0, pytest.param(1, marks=pytest.mark.chaos)], indirect=True)
def test_killed_copy_of_a_keyless_table_starts_over(
    rig: LoadRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its rows are committed in several target transactions; those of the killed run are deleted first."""
    monkeypatch.setattr(order, "BYTES_MAX", 50_000)
    monkeypatch.setattr(order, "PART_BYTES", 100_000)
    for table in definitions(NAME):
        if table not in ("keyless", "parent"):
            rig.source.execute(f"DROP TABLE {NAME}.{table}")
    rig.source.execute(f"DROP TABLE {NAME}.parent")
    rig.source.execute(f"ALTER TABLE {NAME}.keyless MODIFY b VARCHAR(4000)")
    rig.source.execute(f"UPDATE {NAME}.keyless SET b = REPEAT('x', 2000)")
    killed_at(f"{loads.AFTER_CHUNK_COMMIT}:kill@3", lambda: rig.run(rules=RULES))
    done = rig.tables()[NAME, "keyless"].done
    assert 0 < done.rows < COUNT
    assert rig.target.execute(f"SELECT COUNT(*) FROM {NAME}.keyless") == [(done.rows,)]
    assert rig.run(rules=RULES)
    done = rig.tables()[NAME, "keyless"].done
    assert done.rows == COUNT
    sums = [
        server.execute(f"CHECKSUM TABLE {NAME}.keyless")
        for server in (rig.source.primary, rig.target)
    ]
    assert sums[0] == sums[1]
