"""Which ends of processes count against a task, by the ensemble's clock."""

import json

import pytest

from millrace.errors import Fatal
from millrace.zk.client.session import Node
from millrace.zk.lease.starts import (
    KILLS_S,
    Kill,
    Start,
    kills_max_from,
    kills_seen,
    recent,
    start_of,
)


def _node(content: bytes, modified_ms: int = 5000) -> Node:
    return Node(content, 0, czxid=1, mzxid=1, modified_ms=modified_ms, ephemeral_owner=0)


def test_time_of_a_kill_is_when_the_ensemble_wrote_it() -> None:
    """No client sets it: 0 is the time of the write, and a later write keeps it."""
    kills = (Kill("w1", "p1", 1000, 2000), Kill("w2", "p2", 3000))
    start = Start(revision=1, process="p3", worker="w3", kills=kills)
    read = start_of(_node(start.content()), revision=1)
    assert read.began_ms == 5000
    assert [kill.at_ms for kill in read.kills] == [2000, 5000]
    again = start_of(_node(read.content(), 9000), revision=1)
    assert again == read
    assert kills_seen(read, process="p4")[-1] == Kill("w3", "p3", 5000)
    assert kills_seen(read, process="p3") == read.kills
    assert read.kills[1].lived_s == 2.0


def test_kills_older_than_ten_minutes_do_not_count() -> None:
    """The kill that was found just now has no time yet."""
    now_ms = 10_000_000
    edge_ms = now_ms - int(KILLS_S * 1000)
    kills = (Kill("w1", "p1", 0, edge_ms), Kill("w2", "p2", 0, edge_ms + 1), Kill("w3", "p3", 0))
    assert [kill.worker for kill in recent(kills, now_ms)] == ["w2", "w3"]
    assert recent(kills, now_ms)[-1].at_ms == now_ms


@pytest.mark.parametrize(
    "content",
    [
        b"hostile",
        b'{"format":9}',
        json.dumps({"format": 1, "revision": 2}).encode(),
        json.dumps({"format": 1, "revision": 1, "kills": 7}).encode(),
        json.dumps({"format": 1, "revision": 1, "kills": [7]}).encode(),
    ],
)
def test_unreadable_start_or_other_revision_has_no_kills(content: bytes) -> None:
    """The task then starts as a new one."""
    assert start_of(_node(content), revision=1) == Start(revision=1)
    assert start_of(None, revision=1) == Start(revision=1)


def test_start_of_an_older_millrace_is_one_kill() -> None:
    """Its list of workers is not read."""
    old = {"format": 1, "revision": 1, "process": "p", "workers": ["w1", "w2", "w3", "w4"]}
    start = start_of(_node(json.dumps(old).encode()), revision=1)
    assert len(kills_seen(start, process="other")) == 1


@pytest.mark.parametrize(("text", "wanted"), [("", 3), ("0", 0), ("7", 7)])
def test_limit_of_kills_is_read_from_the_environment(text: str, wanted: int) -> None:
    """Unset is 3."""
    assert kills_max_from({"MILLRACE_KILLS_MAX": text}) == wanted
    assert kills_max_from({}) == 3


@pytest.mark.parametrize("text", ["x", "-1", "1.5", "٣", "9999999"])
def test_malformed_limit_of_kills_is_refused(text: str) -> None:
    """The error shows the value."""
    with pytest.raises(Fatal) as caught:
        kills_max_from({"MILLRACE_KILLS_MAX": text})
    assert caught.value.code == "MR-4125"
