"""The programs of ``docs/subscribers.md`` run as printed on a topic. The tables of ``docs/record.md`` are right."""

import json
import time
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from millrace.client import Place, ResolvedRecord, RowRecord, Subscriber
from millrace.deploy.servers import KafkaServer
from millrace.schemas.record.avro_schema import SOURCE
from millrace.schemas.record.control import CONTROL_SCHEMAS, RecordKind
from millrace.schemas.record.framing import peek_kind
from millrace.schemas.sql.statement import Kind
from tests.kit.document_programs import DOCUMENT, checked, example
from tests.kit.paths import ROOT
from tests.kit.publisher.rig import Rig
from tests.kit.subscriber import run_as_subscriber


@pytest.fixture(scope="module")
def rig(kafka: KafkaServer) -> Rig:
    """A topic for this test with rows of two owners."""
    rig = Rig(kafka.bootstrap, f"document-{time.time_ns()}")
    for epoch in (7, 9):
        with rig.running(epoch) as publisher:
            publisher.publish(rig.stream(publisher).next_batch(100))
    return rig


def values(rig: Rig) -> list[bytes]:
    """Every committed value of the topic."""
    consumer = Consumer(
        {"bootstrap.servers": rig.bootstrap, "group.id": "t", "enable.partition.eof": True}
    )
    consumer.assign([TopicPartition(rig.topic, 0, 0)])
    found = []
    while (message := consumer.poll(60)) is not None and message.error() is None:
        found.append(message.value() or b"")
    consumer.close()
    return found


def test_checker_reads_a_topic_to_its_end(rig: Rig, tmp_path: Path) -> None:
    """It uses only a Kafka client and an Avro library; the topic holds its own schemas."""
    result = checked(rig.bootstrap, rig.topic, tmp_path)
    assert result.returncode == 0, result.stderr
    assert json.loads(result.stdout) == {"rows": 200, "seq": 200, "epoch": 9}


@pytest.mark.parametrize("harm", ["none", "lost", "twice", "swapped"])
def test_checker_detects_lost_repeated_and_reordered_rows(
    rig: Rig, tmp_path: Path, harm: str
) -> None:
    """In copies with a row lost, repeated or reordered; a faithful copy passes."""
    copied = values(rig)
    rows = [at for at, value in enumerate(copied) if peek_kind(value) is RecordKind.ROW]
    at = rows[50]
    if harm == "lost":
        del copied[at]
    elif harm == "twice":
        copied.insert(at, copied[at])
    elif harm == "swapped":
        copied[at], copied[at + 1] = copied[at + 1], copied[at]
    producer, topic = Producer({"bootstrap.servers": rig.bootstrap}), f"{rig.topic}-{harm}"
    Rig(rig.bootstrap, topic).open().close()  # creates the topic and writes a fence
    for value in copied:
        producer.produce(topic, value, partition=0)
    producer.flush(60)
    result = checked(rig.bootstrap, topic, tmp_path)
    assert result.returncode == (0 if harm == "none" else 1), result.stderr
    assert ("AssertionError: offset" in result.stderr) == (harm != "none")


def test_checker_starts_at_first_known_schema_after_retention(
    kafka: KafkaServer, tmp_path: Path
) -> None:
    """It skips rows before the schema record and a repeated schema record, and still finds later gaps."""
    rig = Rig(kafka.bootstrap, f"cut-{time.time_ns()}")
    with rig.running() as publisher:
        stream = rig.stream(publisher)
        for count in (50, 60, 70):
            stream.is_introduced = False
            publisher.publish(stream.next_batch(count))
    assert rig.verdict().violations == []
    result = checked(rig.bootstrap, rig.topic, tmp_path)
    assert json.loads(result.stdout)["rows"] == 180, result.stderr
    rig.remove_before(20)
    result = checked(rig.bootstrap, rig.topic, tmp_path)
    assert json.loads(result.stdout) == {"rows": 130, "seq": 180, "epoch": 0}, result.stderr
    assert rig.verdict().violations == []


def test_document_names_every_statement_kind() -> None:
    """Lists every statement kind that a `ddl` record can have. Other kinds have no record or block capture."""
    text = (ROOT / "docs/record.md").read_text()
    without_record = {Kind.TEMPORARY, Kind.TRANSACTION, Kind.DML}
    assert [kind for kind in set(Kind) - without_record if f"`{kind}`" not in text] == []


def test_documented_subscriber_prints_each_row_once(rig: Rig, tmp_path: Path) -> None:
    """With only a subscriber's dependencies; a second run resumes at the saved offset."""
    code = example(DOCUMENT, after="## In Python")
    arguments = (rig.bootstrap, rig.topic, "place.json")
    first = run_as_subscriber(code, *arguments, folder=tmp_path)
    assert first.returncode == 0, first.stderr
    numbers = [int(line.split()[0]) for line in first.stdout.splitlines()]
    assert numbers == list(range(1, 201))
    assert " shop.orders {'id': " in first.stdout
    again = run_as_subscriber(code, *arguments, folder=tmp_path)
    assert (again.returncode, again.stdout) == (0, ""), again.stderr


def test_documented_subscriber_refuses_a_recreated_topic(rig: Rig, tmp_path: Path) -> None:
    """A topic that ends before the saved offset was deleted and created again."""
    (tmp_path / "place.json").write_text("[100000, 5]")
    code = example(DOCUMENT, after="## In Python")
    done = run_as_subscriber(code, rig.bootstrap, rig.topic, "place.json", folder=tmp_path)
    assert done.returncode == 1
    assert "MR-5030 " in done.stderr


def test_subscriber_finds_schemas_from_before_its_offset(rig: Rig) -> None:
    """It starts in the middle of the topic and uses no registry."""
    with Subscriber(rig.bootstrap, rig.topic, place=Place(60)) as subscriber:
        rows = [r.source.seq for r in subscriber.read_to_end() if isinstance(r, RowRecord)]
        assert rows == list(range(rows[0], 201))
        assert subscriber.place.seq == 200
        assert list(subscriber.read_to_end()) == []


def test_subscriber_follows_what_is_published_later(kafka: KafkaServer) -> None:
    """Each row as it arrives, until the caller stops."""
    rig = Rig(kafka.bootstrap, f"followed-{time.time_ns()}")
    with rig.running() as publisher:
        stream = rig.stream(publisher)
        publisher.publish(stream.next_batch(3))
        with Subscriber(rig.bootstrap, rig.topic) as subscriber:
            seen: list[int] = []
            for record in subscriber.follow(lambda: len(seen) == 6):
                if isinstance(record, RowRecord):
                    seen.append(record.source.seq)
                elif isinstance(record, ResolvedRecord) and len(seen) == 3:
                    publisher.publish(stream.next_batch(3))
    assert seen == [1, 2, 3, 4, 5, 6]


def test_readme_subscriber_runs(rig: Rig, tmp_path: Path) -> None:
    """As printed, except for the address and an end."""
    code = example(ROOT / "README.md", after="A subscriber reads the topic").replace(
        '"127.0.0.1:9092", "shop"', "*sys.argv[1:]"
    )
    code = "import sys\n" + code.replace("follow()", "read_to_end()")
    done = run_as_subscriber(code, rig.bootstrap, rig.topic, folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("1 c orders {'id': ")
    assert len(done.stdout.splitlines()) == 200


def test_document_names_every_field() -> None:
    """The fields of ``Source`` and of the control records."""
    text = (ROOT / "docs/record.md").read_text()
    fields = SOURCE["fields"]
    assert isinstance(fields, list)
    names = {str(field["name"]) for field in fields if isinstance(field, dict)}
    for schema in CONTROL_SCHEMAS.values():
        names |= {str(field["name"]) for field in json.loads(schema.text)["fields"]}
    assert [name for name in sorted(names) if f"`{name}`" not in text] == []
