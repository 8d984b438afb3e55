"""`millrace topic tail` and `millrace topic verify` on a real topic."""

import json
import re
import time

import confluent_kafka
import pytest

from millrace.cli import run
from millrace.deploy.servers import KafkaServer
from millrace.registry.client import RegistryClient
from millrace.schemas.record.control import CONTROL_SCHEMAS, RecordKind
from tests.kit.capture.topic_rows import Ids
from tests.kit.publisher.rig import Rig

ROWS = 25


@pytest.fixture(scope="module")
def rig(kafka: KafkaServer) -> Rig:
    """A topic with rows of two owners."""
    rig = Rig(kafka.bootstrap, f"cli-{time.time_ns()}")
    for epoch, count in ((7, 15), (8, 10)):
        with rig.running(epoch) as publisher:
            stream = rig.stream(publisher, transaction_rows=5)
            publisher.publish(stream.next_batch(count))
    return rig


def test_tail_shows_the_last_rows_one_per_line(
    rig: Rig, capsys: pytest.CaptureFixture[str]
) -> None:
    """op, table, key, GTID, seq; -n limits to the last N, whose schemas are earlier in the topic."""
    assert run(["topic", "tail", rig.topic, "--kafka", rig.bootstrap, "-n", "3"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [re.sub(r"^\d+ ", "", line) for line in lines] == [
        f"c shop.orders id={seq} gtid=3e11fa47-71ca-11e1-9e33-c80aa9429562:1005#{row} seq={seq}  "
        f"id: {seq}, state: paid"
        for seq, row in ((23, 3), (24, 4), (25, "5."))
    ]


def test_tail_gives_every_row_as_json_from_the_beginning(
    rig: Rig, capsys: pytest.CaptureFixture[str]
) -> None:
    """One object per line, the envelope as on the wire, in order."""
    command = ["topic", "tail", rig.topic, "--kafka", rig.bootstrap, "--from-beginning"]
    assert run([*command, "--no-follow", "--json"]) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [row["source"]["seq"] for row in rows] == list(range(1, ROWS + 1))
    assert rows[4]["transaction"] == {
        "id": "3e11fa47-71ca-11e1-9e33-c80aa9429562:1001",
        "total_order": 5,
        "last": True,
    }
    assert rows[4]["key"] == {"id": 5}
    assert rows[4]["before"] is None
    assert rows[4]["after"] == {"id": 5, "state": "paid"}


def test_tail_decodes_each_row_by_the_schema_valid_there(
    kafka: KafkaServer, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A registry that lost its store reused the IDs of rows for control records and those of keys for rows."""
    rig = Rig(kafka.bootstrap, f"cli-replaced-{time.time_ns()}")
    for epoch, foreign in ((7, 0), (8, 4), (9, 1)):
        rig.ids = Ids()
        for number in range(foreign):
            rig.ids("foreign", str(number))
        with rig.running(epoch) as publisher:
            publisher.publish(rig.stream(publisher).next_batch(6))
    now = CONTROL_SCHEMAS[RecordKind.FENCE].text
    monkeypatch.setattr(RegistryClient, "schema_by_id", lambda *_: now)
    command = ["topic", "tail", rig.topic, "--kafka", rig.bootstrap, "--no-follow", "--json"]
    asking = [*command, "--registry", "http://127.0.0.1:1"]
    for words, first in (
        ([*asking, "-n", "15"], 4),
        ([*command, "-n", "2"], 17),
        ([*command, "--from-beginning"], 1),
    ):
        assert run(words) == 0, words
        rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
        assert [row["after"] for row in rows] == [
            {"id": seq, "state": "paid"} for seq in range(first, 19)
        ]


def test_tail_shows_control_records_when_asked(
    rig: Rig, capsys: pytest.CaptureFixture[str]
) -> None:
    """Schemas, fences and resolved records at their positions."""
    command = ["topic", "tail", rig.topic, "--kafka", rig.bootstrap, "--from-beginning"]
    assert run([*command, "--no-follow", "--control"]) == 0
    kinds = [line.split()[1] for line in capsys.readouterr().out.splitlines()]
    assert kinds.count("fence") == 2
    assert kinds[0] == "schema"
    assert kinds[-1] == "resolved"


def test_tail_passes_over_other_tables_and_ops(
    rig: Rig, capsys: pytest.CaptureFixture[str]
) -> None:
    """The last N of the rows that are wanted, and the number of the others. Other words are wrong usage."""
    command = ["topic", "tail", rig.topic, "--kafka", rig.bootstrap, "--no-follow"]
    assert run([*command, "--table", "shop.order?", "--op", "c", "-n", "2"]) == 0
    shown = capsys.readouterr()
    assert [line.split()[3] for line in shown.out.splitlines()] == ["id=24", "id=25"]
    assert shown.err.startswith("passed over 0 rows and statements from offset ")
    for words in (["--op", "r"], ["--table", "shop.items", "--table", "x.*"]):
        assert run([*command, *words]) == 0
        shown = capsys.readouterr()
        assert shown.out == ""
        assert shown.err.startswith(f"passed over {ROWS} rows and statements from offset 0 on")
    for words in (["--op", "x"], ["--table", "orders"]):
        assert run([*command, *words]) == 2


def test_verify_accepts_a_complete_topic(rig: Rig, capsys: pytest.CaptureFixture[str]) -> None:
    """Exit code 0 and the figures."""
    assert run(["topic", "verify", rig.topic, "--kafka", rig.bootstrap, "--json"]) == 0
    verdict = json.loads(capsys.readouterr().out)
    assert (verdict["whole"], verdict["hidden"]) == (True, 0)
    assert (verdict["counts"]["rows"], verdict["last_seq"]) == (ROWS, ROWS)
    assert [epoch for epoch, _ in verdict["epochs"]] == [7, 8]
    assert verdict["gtid_set"].endswith(":1-1005")
    assert run(["topic", "verify", rig.topic, "--kafka", rig.bootstrap]) == 0
    assert "whole" in capsys.readouterr().out


def test_verify_names_what_an_open_transaction_hides(
    kafka: KafkaServer, capsys: pytest.CaptureFixture[str]
) -> None:
    """A reader sees nothing after its begin, so nothing is known about the records there."""
    rig = Rig(kafka.bootstrap, f"cli-hidden-{time.time_ns()}")
    with rig.running(7) as publisher:
        publisher.publish(rig.stream(publisher, transaction_rows=5).next_batch(10))
    foreign = confluent_kafka.Producer(
        {"bootstrap.servers": kafka.bootstrap, "transactional.id": rig.topic}
    )
    foreign.init_transactions()
    foreign.begin_transaction()
    foreign.produce(rig.topic, b"hidden", partition=0)
    foreign.flush()
    command = ["topic", "verify", rig.topic, "--kafka", rig.bootstrap]
    assert run([*command, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["hidden"] == 1
    assert run(command) == 0
    assert "not verified  1 offset after " in capsys.readouterr().out
    foreign.abort_transaction()


def test_verify_names_the_offset_of_a_violation(
    kafka: KafkaServer, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit code 1, with the foreign record's offset and the failed check."""
    rig = Rig(kafka.bootstrap, f"cli-broken-{time.time_ns()}")
    with rig.running() as publisher:
        publisher.publish(rig.stream(publisher).next_batch(3))
        end = publisher.hint.end_offset
    foreign = confluent_kafka.Producer({"bootstrap.servers": kafka.bootstrap})
    foreign.produce(rig.topic, b"hello", None, 0)
    assert foreign.flush(60) == 0
    assert run(["topic", "verify", rig.topic, "--kafka", rig.bootstrap]) == 1
    output = capsys.readouterr()
    assert f"offset {end}: one stream: MR-6007" in output.out
    assert "MR-3503" in output.err


def test_missing_topic_is_reported_in_one_sentence(
    kafka: KafkaServer, capsys: pytest.CaptureFixture[str]
) -> None:
    """MR-3501 instead of a hang."""
    assert run(["topic", "verify", "nowhere", "--kafka", kafka.bootstrap]) == 4
    assert "MR-3501" in capsys.readouterr().err
