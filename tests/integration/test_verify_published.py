"""`millrace topic verify` of published topics: records with headers in several partitions of a real broker."""

import json
import time
from collections.abc import Iterable

import confluent_kafka
import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

from millrace.cli import run
from millrace.consumer.topic.published import topics_of, verify_topics
from millrace.consumer.topic.verify_published import Check
from millrace.deploy.servers import KafkaServer
from millrace.drivers.kafka.access import GivenAccess
from tests.kit.kafka_topics import ANSWER_S, make_topic
from tests.kit.publish.rig import SlotRig
from tests.kit.waiting import eventually

PARTITIONS, RECORDS = 3, 40
Record = tuple[int, int, int]  # partition, n, seq


def _records() -> list[Record]:
    return [(seq % PARTITIONS, seq // PARTITIONS + 1, seq) for seq in range(RECORDS)]


def _topic(kafka: KafkaServer, **config: str) -> str:
    name = f"verified-{time.time_ns()}"
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    make_topic(admin, name, partition_count=PARTITIONS, config=config)
    return name


def _write(kafka: KafkaServer, topic: str, records: Iterable[Record], *, epoch: int = 3) -> None:
    """In one Kafka transaction; a transaction before it is aborted, so offsets have gaps."""
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": kafka.bootstrap, "transactional.id": f"{topic}-{epoch}"}
    )
    producer.init_transactions(ANSWER_S)
    for is_kept in (False, True):
        producer.begin_transaction()
        for partition, n, seq in records:
            headers = {"task": "public", "epoch": epoch, "seq": seq, "part": 0, "n": n}
            producer.produce(
                topic,
                b"v%d" % seq,
                b"k%d" % (seq % 4),
                partition=partition,
                headers=[(name, str(value).encode()) for name, value in headers.items()],
            )
        producer.flush(ANSWER_S)
        if is_kept:
            producer.commit_transaction(ANSWER_S)
        else:
            producer.abort_transaction(ANSWER_S)


def test_intact_published_topic_is_whole(
    kafka: KafkaServer, capsys: pytest.CaptureFixture[str]
) -> None:
    """All partitions, over aborted records; the command sees by the headers that a publish task wrote it."""
    topic = _topic(kafka)
    _write(kafka, topic, _records()[:25])
    _write(kafka, topic, _records()[25:], epoch=4)
    assert run(["topic", "verify", topic, "--kafka", kafka.bootstrap]) == 0
    out = capsys.readouterr().out
    assert f"{topic}: whole" in out
    assert "0     14 records, n 1 to 14, seq 0 to 39, epoch 3 from offset" in out
    assert "40 records of 1 topic in" in out
    assert run(["topic", "verify", topic, "--kafka", kafka.bootstrap, "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert (result["whole"], result["records"], len(result["partitions"])) == (True, RECORDS, 3)
    assert [epoch for epoch, _ in result["partitions"][0]["epochs"]] == [3, 4]


def test_tail_shows_records_of_all_partitions_by_seq(
    kafka: KafkaServer, capsys: pytest.CaptureFixture[str]
) -> None:
    """The last ones, or the first ones, with their headers."""
    topic = _topic(kafka)
    _write(kafka, topic, _records())
    command = ["topic", "tail", topic, "--kafka", kafka.bootstrap, "--json", "-n", "7"]
    assert run(command) == 0
    assert run([*command, "--from-beginning"]) == 0
    shown = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    seqs = [int(record["headers"]["seq"]) for record in shown]
    assert seqs == [*range(RECORDS - 7, RECORDS), *range(7)]
    assert {record["partition"] for record in shown} == set(range(PARTITIONS))


def test_missing_record_is_found_with_its_partition_and_offset(
    kafka: KafkaServer, capsys: pytest.CaptureFixture[str]
) -> None:
    """The command exits with 1 and its code."""
    topic = _topic(kafka)
    _write(kafka, topic, [record for record in _records() if record != (1, 5, 13)])
    assert run(["topic", "verify", topic, "--kafka", kafka.bootstrap]) == 1
    captured = capsys.readouterr()
    assert f"{topic}: NOT whole" in captured.out
    assert f"{topic} partition 1 offset" in captured.out
    assert "n: n 6 follows n 4: 1 record missing" in captured.out
    assert "MR-3503" in captured.err
    result = verify_topics(GivenAccess(kafka.bootstrap), [topic])[topic]
    assert [one.violation_count for one in result.partitions] == [0, 1, 0]


def test_partition_cut_by_retention_begins_with_any_n(kafka: KafkaServer) -> None:
    """A cut is no violation; the end that the task's progress names is checked."""
    topic = _topic(kafka)
    _write(kafka, topic, _records())
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    cut = TopicPartition(topic, 0, 20)
    admin.delete_records([cut])[cut].result(ANSWER_S)
    brokers, last_n = GivenAccess(kafka.bootstrap), {(topic, 0): 14, (topic, 1): 99}
    result = verify_topics(brokers, [topic], task="public", last_n=last_n)[topic]
    assert result.partitions[0].first_n is not None
    assert result.partitions[0].first_n > 1
    assert [[v.check for v in one.violations] for one in result.partitions] == [
        [],
        [Check.TAIL],
        [],
    ]


def test_compacted_topic_is_named_and_proves_only_order(
    kafka: KafkaServer, capsys: pytest.CaptureFixture[str]
) -> None:
    """Kafka removes older records of a key, so n has gaps, which are counted. Here the gaps were written."""
    topic = _topic(kafka, **{"cleanup.policy": "compact"})
    kept = [record for record in _records() if record[1] % 2 or record[1] > 12]
    _write(kafka, topic, kept)
    assert run(["topic", "verify", topic, "--kafka", kafka.bootstrap]) == 0
    out = capsys.readouterr().out
    assert "in order; compacted: gaps cannot be proved" in out
    assert "compacted, n 1 to 14" in out


def test_open_kafka_transaction_is_reported_as_not_verified(
    kafka: KafkaServer, capsys: pytest.CaptureFixture[str]
) -> None:
    """Records after it are in no reader's sight."""
    topic = _topic(kafka)
    _write(kafka, topic, _records())
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": kafka.bootstrap, "transactional.id": f"{topic}-open"}
    )
    producer.init_transactions(ANSWER_S)
    producer.begin_transaction()
    producer.produce(topic, b"x", partition=2)
    producer.flush(ANSWER_S)
    eventually(
        lambda: verify_topics(GivenAccess(kafka.bootstrap), [topic])[topic].hidden == 1,
        what="the open Kafka transaction is seen",
    )
    assert run(["topic", "verify", topic, "--kafka", kafka.bootstrap]) == 0
    assert "not verified  1 offset" in capsys.readouterr().out
    producer.abort_transaction(ANSWER_S)


def test_topics_of_a_task_are_whole_up_to_its_progress(kafka: KafkaServer) -> None:
    """The slots of a task write them, over a change of the owner; a partition that lost its end is a violation."""
    rig = SlotRig(kafka.bootstrap, f"verified-task-{time.time_ns()}", partitions=2)
    for epoch, stop in ((7, 150), (8, 300)):
        with rig.running(epoch) as slots:
            for slot in slots:
                rig.feed(slot, stop)
    last_n = topics_of(rig.brokers, rig.order().progress_topic)
    assert {topic for topic, _ in last_n} == set(rig.topics)
    results = verify_topics(rig.brokers, rig.topics, task=rig.prefix, last_n=last_n)
    assert [result.violation_count for result in results.values()] == [0, 0, 0]
    assert sum(result.record_count for result in results.values()) == sum(last_n.values())
    other = verify_topics(rig.brokers, rig.topics[:1], task="another")[rig.topics[0]]
    assert {one.check for each in other.partitions for one in each.violations} == {Check.TASK}


def test_topic_that_does_not_exist_has_a_code(kafka: KafkaServer) -> None:
    """As for a set topic."""
    assert run(["topic", "verify", "no-such-topic", "--kafka", kafka.bootstrap]) == 4
