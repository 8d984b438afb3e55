"""Values in ZooKeeper and in the relay directory: what earlier versions wrote is read, and written the same again."""

import json
from pathlib import Path

import pytest

from millrace.errors import Fatal
from millrace.producer.relay.control import PurgeRequest
from millrace.producer.relay.evictions import Eviction
from millrace.schemas.plain import Dataclass, from_plain, to_plain
from millrace.schemas.requests.snapshot_request import SnapshotRequests
from millrace.schemas.stages import PurgeAnswer
from millrace.schemas.status import TaskReport, report_from_json, report_to_plain
from millrace.zk.lease.starts import Start
from millrace.zk.tree.paths import encode
from tests.kit.control import reports

# each by its name: the text that the code wrote before it had ``schemas.plain``
WRITTEN: dict[str, str] = json.loads((Path(reports.__file__).parent / "written.json").read_text())
REPORTS = ("capture", "apply", "load", "purged", "refused", "blank")


def _json(plain: object) -> str:
    return json.dumps(plain, separators=(",", ":"), ensure_ascii=False)


@pytest.mark.parametrize("name", REPORTS)
def test_report_is_written_as_earlier(name: str) -> None:
    """Byte for byte, in the same order."""
    report = report_from_json(WRITTEN[name].encode(), origin="status/t")
    about = {"revision": 5, "work": "", "brokers": ""}
    assert _json(report_to_plain(report) | about) == WRITTEN[name]


@pytest.mark.parametrize(("name", "kind"), [("snapshots", SnapshotRequests), ("start", Start)])
def test_node_is_written_as_earlier(name: str, kind: type[Dataclass]) -> None:
    """A small node of the tree, with its format number."""
    plain = json.loads(WRITTEN[name])
    assert encode(to_plain(from_plain(kind, plain))).decode() == WRITTEN[name]


@pytest.mark.parametrize(
    ("name", "kind"), [("purge.request", PurgeRequest), ("purge.answer", PurgeAnswer)]
)
def test_file_of_the_relay_is_written_as_earlier(name: str, kind: type[Dataclass]) -> None:
    """With the blanks that JSON of Python has."""
    assert json.dumps(to_plain(from_plain(kind, json.loads(WRITTEN[name])))) == WRITTEN[name]


def test_evictions_are_written_as_earlier() -> None:
    """One object per task."""
    plain = json.loads(WRITTEN["evictions"])
    again = {task: to_plain(from_plain(Eviction, fields)) for task, fields in plain.items()}
    assert json.dumps(again) == WRITTEN["evictions"]


@pytest.mark.parametrize("name", ["capture", "apply", "load", "purged"])
def test_any_wrong_value_makes_a_report_unreadable(name: str) -> None:
    """Each value is replaced by an object in a list, which no field is."""

    def places(plain: object) -> list[tuple[dict[str, object], str]]:
        if isinstance(plain, list):
            return [place for item in plain for place in places(item)]
        if not isinstance(plain, dict):
            return []
        return [place for key, inner in plain.items() for place in [(plain, key), *places(inner)]]

    plain = json.loads(WRITTEN[name])
    for key in ("revision", "work", "brokers"):
        del plain[key]
    for holder, key in places(plain):
        if key in ("running", "records"):  # written for people
            continue
        good, holder[key] = holder[key], [{"wrong": []}]
        with pytest.raises(Fatal) as caught:
            report_from_json(json.dumps(plain).encode(), origin="status/t")
        assert caught.value.code == "MR-4011"
        holder[key] = good
    assert isinstance(report_from_json(json.dumps(plain).encode(), origin="status/t"), TaskReport)


def test_answer_of_an_earlier_worker_may_be_empty() -> None:
    """It reported an empty object while a request waited and none had been answered."""
    plain = json.loads(WRITTEN["purged"])
    plain["relayed"]["purge"] = {}
    report = report_from_json(json.dumps(plain).encode(), origin="status/t")
    assert report.relayed is not None
    assert report.relayed.purge == PurgeAnswer()
