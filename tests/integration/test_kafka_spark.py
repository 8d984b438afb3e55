"""An apply task reads a secured topic: Spark's own source in the JVM, and the reader in its Python workers."""

import pytest

from millrace.consumer.spark.session import SparkDriver
from millrace.deploy.servers import DatabaseServer
from millrace.drivers.kafka.acls import apply_acls, commands
from millrace.schemas.documents import Mechanism
from tests.fixtures.spark import running
from tests.kit.apply.topic import RecordStream, TopicWriter
from tests.kit.secure_kafka import LOGINS, SecureKafka, principal_for

USUAL = (Mechanism.SCRAM_SHA_512, None)  # None: a client certificate; tests of access log in by all


@pytest.mark.parametrize(
    "mechanism",
    [
        pytest.param(each, marks=() if each in USUAL else pytest.mark.chaos, id=str(each))
        for each in LOGINS
    ],
)
def test_apply_task_logs_in_everywhere(
    spark: SparkDriver,
    secure_kafka: SecureKafka,
    mariadb_server: DatabaseServer,
    target_password: None,
    mechanism: Mechanism | None,
) -> None:
    """With only the rights that `millrace acl print` lists; None is a client certificate."""
    name = f"secured{LOGINS.index(mechanism)}"
    stream = RecordStream()
    writer = TopicWriter(secure_kafka.server.bootstrap, stream)
    stream.ddl(f"CREATE DATABASE {name}")
    writer.publish()
    for command in commands(
        apply_acls(writer.topic), principal=principal_for(mechanism), bootstrap="b:1"
    ):
        secure_kafka.kafka_acls(command)
    brokers = secure_kafka.brokers(mechanism)
    with running(spark, mariadb_server, writer, name=name, brokers=brokers) as task:
        task.wait_until_at(stream.seq)
        stream.ddl(f"DROP DATABASE {name}")
        writer.publish()
        task.wait_until_at(stream.seq)
        assert task.codes <= {"MR-5005"}  # a busy server may refuse a lock; no login was refused
