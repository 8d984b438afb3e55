"""The soak's parts: decisions by seed, what counts as which kill, what is kept of a failure."""

import json
from itertools import islice
from pathlib import Path

import pytest

from tests.fault.test_soak import keep_logs, kept_folder
from tests.soak import LIVES_S, Death, History, lives


@pytest.mark.parametrize("name", LIVES_S)
def test_the_same_seed_decides_the_same(name: str) -> None:
    """Of each victim for itself, whatever the others do; another seed decides otherwise."""
    drawn = list(islice(lives(7, name), 100))
    assert list(islice(lives(7, name), 100)) == drawn
    assert list(islice(lives(8, name), 100)) != drawn
    armed = [life for life in drawn if life.fault]
    assert 20 < len(armed) < 80
    assert len({life.fault for life in armed}) > 3


def test_kills_are_counted_by_their_kind(tmp_path: Path) -> None:
    """At a point or not; with another in one instant, or near it by chance; before a task ran again, or behind it."""
    history = History(tmp_path / "deaths.jsonl")
    history.add("worker", "after 0.9 s", is_recovering=True)
    history.add("apply", "apply.before_mark:kill@1")
    history.add("kafka", "killed")
    history.add("worker", "publisher.after_begin:raise@3,publisher.before_renew:kill@2")
    history.add("worker", "with apply", is_recovering=True)
    history.add("apply", "with worker")
    assert (history.at_points, history.together, history.recovering) == (2, 1, 2)
    assert history.counts == {"worker": 3, "apply": 2, "kafka": 1}
    kept = [json.loads(line) for line in history.path.read_text().splitlines()]
    assert [Death(**line) for line in kept] == history.deaths


def test_a_replay_takes_nothing_from_the_run_before(tmp_path: Path) -> None:
    """Each run has a folder of its own, with the log of every process in it."""
    stack = tmp_path / "stack"
    for name in ("worker", "source/primary"):
        (stack / name).mkdir(parents=True)
        (stack / name / "log").write_text(name)
    first, second = (kept_folder(tmp_path / "soak", "7-mysql") for _ in range(2))
    assert first != second
    keep_logs(stack, first)
    assert {path.name: path.read_text() for path in first.iterdir()} == {
        "worker.log": "worker",
        "source-primary.log": "source/primary",
    }
    assert list(second.iterdir()) == []
