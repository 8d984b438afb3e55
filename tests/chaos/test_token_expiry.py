"""Clients log in with tokens that soon expire, and the broker ends every session at its token's end (KIP-368).

The token is the output of a program. librdkafka's clients get a new one in time and stay connected. Spark's query ends
before its token does, and the next one gets a new token.
"""

import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from millrace.consumer.spark.session import SparkDriver
from millrace.deploy.servers import DatabaseServer, KafkaSecurity, KafkaServer
from millrace.drivers.kafka.acls import apply_acls, capture_acls, commands, subscriber_acls
from millrace.drivers.kafka.producer import WRITING
from millrace.drivers.kafka.reader import TopicReader
from millrace.drivers.kafka.topic import TopicAdmin
from millrace.schemas.documents import Brokers, Mechanism, Sasl, SecretPlace, SecretReference, Tls
from tests.fixtures.spark import running
from tests.kit.apply.tables import integer, table
from tests.kit.apply.topic import RecordStream, TopicWriter
from tests.kit.publisher.rig import Rig
from tests.kit.secure_kafka import USER, SecureKafka
from tests.kit.waiting import eventually

LIFE_S = 12
SPARK_LIFE_S = 60  # a query starts within four fifths of it on a busy machine, too
SESSION = "listener.name.login.oauthbearer.connections.max.reauth.ms=3600000\n"


class ShortSessions(KafkaSecurity):
    """A session ends with its token."""

    def properties(self) -> str:
        """Kafka's default lets a session outlive its token."""
        return super().properties() + SESSION


class Tokens:
    """A program that prints the newest token, and counts its runs."""

    def __init__(self, kafka: SecureKafka, folder: Path, *, life_s: int = LIFE_S) -> None:
        self._kafka, self._folder, self._life_s = kafka, folder, life_s
        self._stop = threading.Event()
        self._runs = folder / "runs"
        self._program = folder / "program"
        self._program.write_text(f"#!/bin/sh\necho >> {self._runs}\ncat {folder / 'token'}\n")
        self._program.chmod(0o700)
        self._issued = 0
        self._issue()

    @property
    def reference(self) -> SecretReference:
        """The token in a document."""
        return SecretReference(SecretPlace.PROGRAM, str(self._program))

    @property
    def file(self) -> SecretReference:
        """The file with the newest token: executors of the session's Spark may run no program."""
        return SecretReference(SecretPlace.FILE, str(self._folder / "token"))

    @property
    def runs(self) -> int:
        """How often the program ran."""
        return len(self._runs.read_text()) if self._runs.exists() else 0

    def _issue(self) -> None:
        new = self._folder / "new"
        new.write_text(self._kafka.issuer.token(USER, life_s=self._life_s))
        new.rename(self._folder / "token")
        self._issued += 1

    def _renew(self) -> None:
        while not self._stop.wait(1.0):
            self._issue()

    def while_valid(self, count: int) -> Iterator[int]:
        """Numbers, one for each token, while ``count`` tokens expire one after the other."""
        for number in range(count * self._life_s):
            eventually(lambda number=number: self._issued > number)  # type: ignore[misc]
            yield number

    @contextmanager
    def renewed(self) -> Iterator["Tokens"]:
        """A new token each second."""
        thread = threading.Thread(target=self._renew)
        thread.start()
        try:
            yield self
        finally:
            self._stop.set()
            thread.join()


@pytest.fixture
def kafka(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[SecureKafka]:
    """A broker with short sessions; programs may give secrets."""
    monkeypatch.setenv("MILLRACE_SECRETS_EXEC", "allow")
    made = SecureKafka(tmp_path / "kafka")
    security = made.security
    made.security = ShortSessions(
        tls=security.tls, plain_users=security.plain_users, jwks=security.jwks
    )
    made.server = KafkaServer(made.folder / "kafka", security=made.security)
    made.start()
    yield made
    made.server.kill()


def brokers_of(kafka: SecureKafka, token: SecretReference) -> Brokers:
    """The listener with logins, and the token."""
    sasl = Sasl(Mechanism.OAUTHBEARER, token)
    return Brokers(kafka.security.login, Tls(ca_path=kafka.authority), None, sasl)


def test_clients_outlive_their_tokens(kafka: SecureKafka, tmp_path: Path) -> None:
    """A publisher, a reader and an admin client, each of which stays the same instance over four tokens."""
    topic = "outlived"
    acls = (*capture_acls(topic), *subscriber_acls(topic))
    for command in commands(acls, principal=f"User:{USER}", bootstrap="b:1"):
        kafka.kafka_acls(command)
    with Tokens(kafka, tmp_path).renewed() as tokens:
        brokers = brokers_of(kafka, tokens.reference)
        rig = Rig(kafka.server.bootstrap, topic)
        rig.brokers = brokers
        with rig.running(7) as publisher, closing(TopicReader(brokers, topic)) as reader:
            admin = TopicAdmin(brokers, topic, errors=WRITING)
            stream, first = rig.stream(publisher), rig.instance
            end = reader.ends().stable
            for _ in tokens.while_valid(4):
                publisher.publish(stream.next_batch(3))
                before, end = end, -1
                while end <= before:  # a commit returns some milliseconds before
                    end = reader.ends().stable
                assert admin.settings() is not None
            assert rig.instance is first, "the producer was replaced"
        assert tokens.runs >= 3 * 3, "each client has asked for each token"


def test_apply_task_moves_rows_over_its_tokens(
    kafka: SecureKafka,
    spark: SparkDriver,
    mariadb_server: DatabaseServer,
    target_password: None,
    tmp_path: Path,
) -> None:
    """A row each second while two tokens expire: each end of a query is retried, and no other error is seen."""
    name = "outlived"
    mariadb_server.execute(f"CREATE DATABASE {name}")
    mariadb_server.execute(f"CREATE TABLE {name}.t (id INT PRIMARY KEY)")
    stream = RecordStream()
    writer = TopicWriter(kafka.server.bootstrap, stream)
    for command in commands(apply_acls(writer.topic), principal=f"User:{USER}", bootstrap="b:1"):
        kafka.kafka_acls(command)
    with Tokens(kafka, tmp_path, life_s=SPARK_LIFE_S).renewed() as tokens:
        brokers = brokers_of(kafka, tokens.file)
        with running(spark, mariadb_server, writer, name=name, brokers=brokers) as task:
            for number in tokens.while_valid(2):
                stream.insert(table(name, "t", integer("id")), {"id": number})
                stream.commit()
                writer.publish()
            task.wait_until_at(stream.seq)
        assert task.codes == {"MR-7001"}
        assert task.retries >= 2
    assert mariadb_server.execute(f"SELECT COUNT(*) FROM {name}.t") == [(number + 1,)]
    mariadb_server.execute(f"DROP DATABASE {name}")
