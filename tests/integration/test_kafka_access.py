"""Clients connect to a real broker with TLS and every login, and each refusal has its own code."""

import time
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from millrace.cli import run
from millrace.cli.exits import ExitCode
from millrace.deploy.servers.tls import tls_files
from millrace.drivers.kafka.acls import capture_acls, commands, subscriber_acls
from millrace.drivers.kafka.open_transactions import find_open_writer
from millrace.drivers.kafka.reader import TopicReader
from millrace.drivers.kafka.wire import find_refusal, require_transactions
from millrace.schemas.documents import (
    Brokers,
    ClientCertificate,
    Mechanism,
    Sasl,
    SecretPlace,
    SecretReference,
    Tls,
    plain_brokers,
    yaml_from_plain,
)
from tests.kit.publisher.rig import Rig
from tests.kit.secure_kafka import (
    LOGINS,
    PASSWORD,
    USER,
    SecureKafka,
    principal_for,
)

QUICK_S = 10.0  # each answer takes milliseconds; a refused login is delayed by the broker


def _allow(kafka: SecureKafka, topic: str, principal: str) -> None:
    for command in commands(
        (*capture_acls(topic), *subscriber_acls(topic)), principal=principal, bootstrap="b:1"
    ):
        kafka.kafka_acls(command)


@pytest.mark.parametrize("mechanism", LOGINS, ids=str)
def test_publisher_and_readers_log_in(
    secure_kafka: SecureKafka, mechanism: Mechanism | None
) -> None:
    """A publisher with its audit, a reader, and the request for open transactions; None is a client certificate."""
    topic = f"login-{time.time_ns()}"
    principal = principal_for(mechanism)
    _allow(secure_kafka, topic, principal)
    brokers = secure_kafka.brokers(mechanism)
    rig = Rig(secure_kafka.server.bootstrap, topic)
    rig.brokers = brokers
    with rig.running(7) as publisher:
        publisher.publish(rig.stream(publisher).next_batch(3))
    with closing(TopicReader(brokers, topic)) as reader:
        ends = reader.ends()
        assert sum(len(chunk) for chunk in reader.chunks(ends.low, ends.stable)) > 3
    secure_kafka.kafka_acls(
        f"kafka-acls.sh --bootstrap-server b:1 --add --allow-principal {principal}"
        f" --operation Describe --transactional-id foreign-{topic}"
    )
    with rig.foreign_transaction():
        opened = rig.ends().stable
        assert find_open_writer(brokers, topic, offset=opened) == f"foreign-{topic}"
    assert find_refusal(brokers) is None
    require_transactions(brokers)


def _refused(kafka: SecureKafka, folder: Path) -> dict[str, tuple[str, Brokers]]:
    """Brokers that each fail in another way, with the code of the failure."""
    good, plain = kafka.brokers(), Brokers(kafka.server.bootstrap)
    assert good.sasl is not None
    own = kafka.brokers(None)
    foreign = tls_files()
    assert foreign is not None
    wrong = kafka.secret("wrong", "another secret")
    old = kafka.secret("old-token", kafka.issuer.token(USER, life_s=-600))
    by_ip = good.bootstrap.replace("localhost", "127.0.0.1")
    key = SecretReference(SecretPlace.FILE, str(foreign.key))
    certificate = str(kafka.client.certificate)
    return {
        "wrong password": ("MR-7001", replace(good, sasl=replace(good.sasl, secret=wrong))),
        "unknown user": ("MR-7001", replace(good, sasl=replace(good.sasl, user="nobody"))),
        "old token": ("MR-7001", replace(good, sasl=Sasl(Mechanism.OAUTHBEARER, old))),
        "other CA": ("MR-7002", replace(good, tls=Tls(ca_path=str(foreign.authority)))),
        "other name": ("MR-7003", replace(good, bootstrap=by_ip)),
        "plain to TLS": ("MR-7004", replace(plain, bootstrap=good.bootstrap)),
        "TLS to plain": ("MR-7004", replace(good, bootstrap=plain.bootstrap)),
        "no certificate": ("MR-7005", replace(own, certificate=None)),
        "no login": ("MR-7006", replace(good, sasl=None)),
        "login where none is": ("MR-7006", replace(own, sasl=good.sasl)),
        "no file": ("MR-7007", replace(good, tls=Tls(ca_path=str(folder / "none.pem")))),
        "other key": ("MR-7007", replace(own, certificate=ClientCertificate(certificate, key))),
    }


REFUSED = (
    "wrong password",
    "unknown user",
    "old token",
    "other CA",
    "other name",
    "plain to TLS",
    "TLS to plain",
    "no certificate",
    "no login",
    "login where none is",
    "no file",
    "other key",
)


@pytest.mark.parametrize("how", REFUSED)
def test_each_refusal_has_its_code(secure_kafka: SecureKafka, tmp_path: Path, how: str) -> None:
    """librdkafka reports most of them as silence. The error contains no secret."""
    code, brokers = _refused(secure_kafka, tmp_path)[how]
    began_s = time.monotonic()
    found = find_refusal(brokers)
    assert time.monotonic() - began_s < QUICK_S
    assert found is not None
    assert found.code == code
    assert PASSWORD not in str(found)


def test_refusal_replaces_the_silence_of_the_client(
    secure_kafka: SecureKafka, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """`millrace topic verify` with a file that names the login: first the wrong password, then the right one."""
    topic = f"verified-{time.time_ns()}"
    with Rig(secure_kafka.server.bootstrap, topic).running(7):
        pass
    for command in commands(subscriber_acls(topic), principal=f"User:{USER}", bootstrap="b:1"):
        secure_kafka.kafka_acls(command)
    brokers = secure_kafka.brokers()
    assert brokers.sasl is not None
    rotated = secure_kafka.secret("rotated", "not yet")
    brokers = replace(brokers, sasl=replace(brokers.sasl, secret=rotated))
    config = tmp_path / "kafka.yaml"
    config.write_text(yaml_from_plain(plain_brokers(brokers)))
    verify = ["topic", "verify", topic, "--kafka-config", str(config)]
    assert run(verify) == ExitCode.RETRY
    assert "MR-7001" in capsys.readouterr().err
    secure_kafka.secret("rotated", PASSWORD)
    assert run(verify) == 0
