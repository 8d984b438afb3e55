"""The ledger's subscriber on a real broker with a foreign producer: the records it returns and the errors it finds."""

import io
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer

import fastavro
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

from millrace.deploy.servers import KafkaServer
from tests.kit.kafka_topics import make_topic
from tests.kit.waiting import eventually
from tests.oracle.reader import Reading, Subscriber, Topic, end_of, read_again
from tests.oracle.record import Message
from tests.oracle.topic import TopicOracle

SCHEMA = """{"type": "record", "name": "Resolved", "namespace": "millrace.control", "fields": [
 {"name": "control", "type": "string"}, {"name": "seq", "type": "long"}, {"name": "epoch", "type": "long"}]}"""
HARMS = {
    "none": (((0, 1), (0, 1), (0, 2)), ""),
    "epoch": (((0, 1), (0, 2), (0, 1)), "epoch 1 after epoch 2"),
    "seq": (((0, 1), (2, 1)), "seq 2 after seq 0"),
}


class _Registry(BaseHTTPRequestHandler):
    """Knows schema 9; the first request fails."""

    asked: list[str]

    def do_GET(self) -> None:
        self.asked.append(self.path)
        if len(self.asked) == 1:
            self.send_error(503)
            return
        body = json.dumps({"schema": SCHEMA}).encode()
        self.send_response(200 if self.path == "/schemas/ids/9" else 404)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 (the library's name)
        """Do nothing."""


@contextmanager
def _registry() -> Iterator[str]:
    handler = type("Handler", (_Registry,), {"asked": []})
    with HTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def _framed(seq: int, epoch: int) -> bytes:
    body = io.BytesIO()
    record = {"control": "resolved", "seq": seq, "epoch": epoch}
    fastavro.schemaless_writer(body, fastavro.parse_schema(json.loads(SCHEMA)), record)
    return b"\0" + (9).to_bytes(4, "big") + body.getvalue()


@pytest.mark.parametrize("harm", HARMS)
def test_independent_reader_sees_committed_records_and_names_errors(
    kafka: KafkaServer, harm: str
) -> None:
    """Aborted records are invisible, an unreachable registry is retried, and two readings are equal."""
    records, words = HARMS[harm]
    name = f"ledger-reader-{harm}"
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    make_topic(admin, name)
    producer = Producer({"bootstrap.servers": kafka.bootstrap, "transactional.id": name})
    producer.init_transactions()
    with _registry() as url:
        topic = Topic(kafka.bootstrap, name, url)
        oracle = TopicOracle(is_whole=True)
        subscriber = Subscriber(topic, 0, oracle.feed)
        subscriber.start()
        for seq, epoch in records:
            for finish in (producer.abort_transaction, producer.commit_transaction):
                producer.begin_transaction()
                producer.produce(name, _framed(seq, epoch), partition=0)
                producer.flush()
                finish()
        # each was sent twice; each has a marker that follows its commit
        eventually(lambda: end_of(topic) >= 4 * len(records), what="the last marker")
        end = end_of(topic)
        if words:
            with pytest.raises(AssertionError, match=words):
                subscriber.stop(end)
            return
        subscriber.stop(end)
        oracle.finish()
        again = Reading()
        seen: list[Message] = list(read_again(topic, 0, end, again))
        assert [(message.seq, message.epoch) for message in seen] == list(records)
        assert subscriber.reading.seen == again.seen
