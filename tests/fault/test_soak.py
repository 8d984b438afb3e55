"""Kills by seed for half an hour: `make chaos`, or `make soak SEED=… MINUTES=…` to replay one."""

import random
import shutil
import time
from pathlib import Path

import pytest

from millrace.home import home
from tests.fix_servers import FLAVOURS
from tests.fix_stack import FaultStack
from tests.ledger.run import ledger_load
from tests.soak import History, Soak

ROUND_S = 150.0  # of kills, then calm, and everybody is asked
KILLS_A_MINUTE_MIN = 10


@pytest.mark.chaos
@pytest.mark.parametrize("fault_stack", FLAVOURS, indirect=True, scope="session")
def test_a_soak_of_kills_loses_and_repeats_nothing(
    fault_stack: FaultStack, request: pytest.FixtureRequest
) -> None:
    """Rounds of kills under the ledger's load; after each, every oracle from outside is asked."""
    chosen = request.config.getoption("--soak-seed")
    seed = random.SystemRandom().randrange(1 << 32) if chosen is None else chosen
    minutes = request.config.getoption("--soak-minutes") / len(FLAVOURS)
    folder = kept_folder(seed, fault_stack)
    print(f"soak: seed {seed}, {minutes:g} minutes, kept in {folder}")
    history = History(folder / "deaths.jsonl")
    soak = Soak(fault_stack, seed=seed, history=history)
    end_s = time.monotonic() + minutes * 60
    rounds = 0
    try:
        for process in ("worker", "apply", "scheduler"):
            fault_stack.services[process].kill()
        while time.monotonic() < end_s:
            rounds += 1
            with ledger_load(fault_stack, seed + rounds) as ledger:
                soak.begin()
                time.sleep(min(ROUND_S, max(1.0, end_s - time.monotonic())))  # the faults' time
                soak.calm()
                verdict = ledger.check()
            print(f"round {rounds}: {verdict} after {dict(history.counts)}")
            for process in ("worker", "apply", "scheduler"):
                fault_stack.services[process].kill()
    finally:
        for log in fault_stack.stack.folder.glob("*/log"):
            shutil.copy(log, folder / f"{log.parent.name}.log")
        for name in ("worker", "apply", "scheduler"):
            fault_stack.end(name)
            fault_stack.launch(name)
    assert len(history.deaths) >= KILLS_A_MINUTE_MIN * minutes, history.counts


def kept_folder(seed: int, stack: FaultStack) -> Path:
    """Where the run's history and logs stay."""
    folder = home() / "soak" / f"{seed}-{stack.stack.options.flavour}"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    return folder
