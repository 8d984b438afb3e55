"""Generated tables of every type and key are loaded under writes and DDL, and the task dies at every point of it."""

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from millrace.deploy.servers import KafkaServer
from millrace.schemas.gtid import Flavour
from tests.fixtures.load import load_rig, source_of_one
from tests.fixtures.servers import FLAVOURS, Pool
from tests.kit.apply.loaded_topic import LoadedTopic
from tests.kit.apply.loading import LoadRig
from tests.kit.ordeal import oracle, verdict
from tests.kit.ordeal.ordeal import LOADING, Ordeal

DAMAGES = 100


@pytest.fixture(params=FLAVOURS, ids=str)
def rig(request: pytest.FixtureRequest, pool: Pool) -> Iterator[LoadRig]:
    """A source, with replicas on MariaDB, and a target. Native replicas of MySQL stop at some statements."""
    flavour = request.param
    is_set = flavour is Flavour.MARIADB
    source = pool.source_set(flavour) if is_set else source_of_one(pool, flavour)
    with load_rig(pool, source, f"ordeal_{flavour}") as made:
        made.owner()  # creates the tables of loads, which ``remove`` empties
        yield made


@pytest.mark.chaos
@pytest.mark.guarantee("loaded")
def test_load_under_ddl_and_kills_ends_equal(
    rig: LoadRig,
    kafka: KafkaServer,
    registry: str,
    tmp_path: Path,
    request: pytest.FixtureRequest,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Plain SQL compares both servers; then `millrace compare` agrees, and finds and repairs random damage."""
    chosen = request.config.getoption("--soak-seed")
    seed = random.SystemRandom().randrange(1 << 32) if chosen is None else chosen
    topic = LoadedTopic(rig.source, rig.target, rig.name, kafka.bootstrap, registry, tmp_path)
    ordeal = Ordeal(topic, seed)
    try:
        with ordeal.endured():
            found = oracle.differences(rig.source.primary, rig.target, rig.name)
            assert found == [], "\n".join(found)
            verdict.check_compared(rig)
            verdict.check_repaired(rig, seed=seed, damages=DAMAGES)
    except BaseException as failure:
        failure.add_note(
            f"again with --soak-seed {seed}; the task's last words: {ordeal.last_words()}"
        )
        raise
    with capsys.disabled():
        print(f"\nordeal {seed}: {ordeal.summary()}", flush=True)
    assert {point.partition("@")[0] for point in LOADING} <= ordeal.told.points
