"""Random kills by seed for half an hour: `make chaos`, or `make soak SEED=… MINUTES=…` to replay one."""

import random
import shutil
import time
from collections import Counter
from contextlib import suppress
from itertools import count
from pathlib import Path

import pytest

from millrace.home_folder import home
from tests.fixtures.servers import FLAVOURS
from tests.fixtures.stack import FaultStack
from tests.kit.faults.soak import LIVES_S, History, Soak
from tests.oracle.run import ledger_load

ROUND_S = 150.0  # of kills; then the load stops and everything is checked
KILLS_A_MINUTE_MIN = 10
AT_POINTS_A_MINUTE_MIN = 1
TOGETHER_A_MINUTE_MIN = 1  # pairs
RECOVERING_A_MINUTE_MIN = 2


@pytest.mark.chaos
@pytest.mark.parametrize("fault_stack", FLAVOURS, indirect=True, scope="session")
def test_soak_of_kills_loses_and_repeats_nothing(
    fault_stack: FaultStack, request: pytest.FixtureRequest, capsys: pytest.CaptureFixture[str]
) -> None:
    """Rounds of kills under the ledger's load; after each round all outside oracles are checked."""
    chosen = request.config.getoption("--soak-seed")
    seed = random.SystemRandom().randrange(1 << 32) if chosen is None else chosen
    whole = request.config.getoption("--soak-minutes")
    minutes = whole / len(FLAVOURS)
    folder = kept_folder(home() / "soak", f"{seed}-{fault_stack.stack.options.flavour}")

    def say(text: str) -> None:
        with capsys.disabled():
            print(f"\nsoak: {text}", flush=True)

    say(f"seed {seed}, {minutes:g} minutes, kept in {folder}")
    history = History(folder / "deaths.jsonl")
    soak = Soak(fault_stack, seed=seed, history=history)
    end_s = time.monotonic() + minutes * 60
    rounds = 0
    try:
        for process in LIVES_S:
            fault_stack.services[process].kill()
        while time.monotonic() < end_s:
            rounds += 1
            with ledger_load(fault_stack, seed + rounds) as ledger:
                soak.begin()
                time.sleep(min(ROUND_S, max(1.0, end_s - time.monotonic())))  # time of the faults
                soak.calm()
                ledger.wait_seen()
                verdict = ledger.check()
            say(f"round {rounds}: {verdict} after {_by_kind(history)}")
            for process in LIVES_S:
                fault_stack.services[process].kill()
    except BaseException as failure:
        failure.add_note(f"again with: make soak SEED={seed} MINUTES={whole:g}; see {folder}")
        fault_stack.keep(failure, folder.name)
        with suppress(OSError):  # the failure itself is reported
            keep_logs(fault_stack.stack.folder, folder)
        raise
    else:
        keep_logs(fault_stack.stack.folder, folder)
    finally:
        for name in LIVES_S:
            fault_stack.services[name].kill()
    for name in LIVES_S:
        fault_stack.end(name)
        fault_stack.launch(name)
    assert len(history.deaths) >= KILLS_A_MINUTE_MIN * minutes, history.counts
    assert history.at_points >= AT_POINTS_A_MINUTE_MIN * minutes
    assert history.together >= TOGETHER_A_MINUTE_MIN * minutes
    assert history.recovering >= RECOVERING_A_MINUTE_MIN * minutes


def _by_kind(history: History) -> str:
    kinds = Counter(
        f"{death.victim} {'at a point' if death.is_at_a_point else 'anywhere'}"
        for death in history.deaths
    )
    counts = ", ".join(f"{kind} {number}" for kind, number in sorted(kinds.items()))
    several = f"{history.together} pairs, {history.recovering} while they recovered"
    return f"{len(history.deaths)} kills ({counts}; {several})"


def kept_folder(root: Path, name: str) -> Path:
    """A new folder for the run's history and logs; a replay reads nothing from earlier runs."""
    folder = next(
        folder for number in count(1) if not (folder := root / f"{name}-{number}").exists()
    )
    folder.mkdir(parents=True)
    return folder


def keep_logs(stack_folder: Path, folder: Path) -> None:
    """Logs of every process and server."""
    for log in stack_folder.rglob("log"):
        if log.is_file():
            shutil.copy(log, folder / f"{'-'.join(log.parent.relative_to(stack_folder).parts)}.log")
