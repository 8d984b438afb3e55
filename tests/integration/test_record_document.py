"""``docs/record.md``: its checker runs as printed, on a real topic, and its tables are the format's."""

import json
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from deploy.servers import KafkaServer
from schemas.avro import SOURCE
from schemas.control import CONTROL_SCHEMAS, RecordKind
from schemas.framing import peek_kind
from tests.publisher_rig import Rig

DOCUMENT = Path(__file__).parents[2] / "docs" / "record.md"


def checked(bootstrap: str, topic: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """The checker of the document as a program of its own."""
    (code,) = re.findall(r"```python\n(.*?)```", DOCUMENT.read_text(), re.DOTALL)
    program = folder / "checker.py"
    program.write_text(code)
    command = [sys.executable, str(program), bootstrap, topic]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)


@pytest.fixture(scope="module")
def rig(kafka: KafkaServer) -> Rig:
    """A topic of its own with rows of two owners."""
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


def test_the_checker_reads_a_topic_to_its_end(rig: Rig, tmp_path: Path) -> None:
    """With nothing but a Kafka client and an Avro library; the topic explains its rows."""
    result = checked(rig.bootstrap, rig.topic, tmp_path)
    assert result.returncode == 0, result.stderr
    assert json.loads(result.stdout) == {"rows": 200, "seq": 200, "epoch": 9}


@pytest.mark.parametrize("harm", ["none", "lost", "twice", "swapped"])
def test_the_checker_sees_every_harm(rig: Rig, tmp_path: Path, harm: str) -> None:
    """A copy of the topic with one row lost, repeated, or two out of order; and none in a faithful copy."""
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
    Rig(rig.bootstrap, topic).open().close()  # makes the topic; begins it with a fence
    for value in copied:
        producer.produce(topic, value, partition=0)
    producer.flush(60)
    result = checked(rig.bootstrap, topic, tmp_path)
    assert result.returncode == (0 if harm == "none" else 1), result.stderr
    assert ("AssertionError: offset" in result.stderr) == (harm != "none")


def test_the_checker_begins_where_an_id_is_explained_again_after_retention(
    kafka: KafkaServer, tmp_path: Path
) -> None:
    """What stands in front of the explanation is passed over; so is a repeated one. A hole behind it is still seen."""
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


def test_the_document_names_every_field() -> None:
    """Of ``Source`` and of the control records."""
    text = DOCUMENT.read_text()
    fields = SOURCE["fields"]
    assert isinstance(fields, list)
    names = {str(field["name"]) for field in fields if isinstance(field, dict)}
    for schema in CONTROL_SCHEMAS.values():
        names |= {str(field["name"]) for field in json.loads(schema.text)["fields"]}
    assert [name for name in sorted(names) if f"`{name}`" not in text] == []
