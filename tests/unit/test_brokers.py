"""The mapping `kafka` of documents: what it accepts, and the settings of clients that come from it."""

import base64
import json
import stat
import time
from pathlib import Path
from typing import Any

import pytest

from millrace.consumer.spark.kafka_source import source_options, token_end, token_url
from millrace.errors import Fatal
from millrace.schemas.documents import (
    Brokers,
    Mechanism,
    Sasl,
    SecretPlace,
    SecretReference,
    TlsMode,
    parse_brokers,
    plain_brokers,
    plain_from_yaml,
)
from millrace.schemas.documents.brokers import expiry_of

LOGIN = "sasl: {mechanism: SCRAM-SHA-512, user: m, password: env:KAFKA_TEST_PASSWORD}"
OWN = "tls_cert: /c.pem\ntls_key: env:KAFKA_TEST_KEY\ntls_key_password: env:KAFKA_TEST_PASSWORD\n"
SECRET = 'pa"ss\\word\tß'
JAAS = "org.apache.kafka.common.security.scram.ScramLoginModule required "


def _parsed(text: str) -> Brokers:
    return parse_brokers(plain_from_yaml(text), origin="kafka.yaml")


@pytest.fixture(autouse=True)
def secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    """The secrets that the mappings refer to."""
    monkeypatch.setenv("KAFKA_TEST_PASSWORD", SECRET)
    monkeypatch.setenv("KAFKA_TEST_KEY", "-----BEGIN PRIVATE KEY-----\nx")


@pytest.mark.parametrize(
    ("text", "mode"),
    [
        ("bootstrap: h:1", TlsMode.DISABLED),
        (f"bootstrap: h:1\n{LOGIN}", TlsMode.VERIFY_IDENTITY),
        ("bootstrap: h:1\ntls_ca: /ca.pem", TlsMode.VERIFY_IDENTITY),
        (f"bootstrap: h:1\n{OWN}", TlsMode.VERIFY_IDENTITY),
        (f"bootstrap: h:1\ntls: verify-ca\n{LOGIN}", TlsMode.VERIFY_CA),
        (f"bootstrap: h:1\ntls: disabled\n{LOGIN}", TlsMode.DISABLED),
    ],
)
def test_login_is_encrypted_unless_refused(text: str, mode: TlsMode) -> None:
    """`tls` is verify-identity once anything else than addresses is given; the round trip keeps it."""
    brokers = _parsed(text)
    assert brokers.tls.mode is mode
    assert parse_brokers(plain_brokers(brokers), origin="again") == brokers
    assert SECRET not in json.dumps(plain_brokers(brokers))


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("tls: require-unverified", "tls: found 'require-unverified', wanted verify-identity | "),
        ("tls: disabled\ntls_ca: /ca.pem", "tls: found disabled with certificates"),
        ("tls_cert: /c.pem", "tls_key: found nothing, wanted a value, because tls_cert is given"),
        ("tls_key: env:A", "tls_cert: found nothing"),
        ("tls_key_password: env:A", "tls_key_password: found a password without a key"),
        ("tls_key: /key.pem\ntls_cert: /c", "tls_key: found a value that is not shown"),
        ("sasl: {user: m}", "sasl.mechanism: found nothing, wanted PLAIN | SCRAM-SHA-256"),
        ("sasl: {mechanism: GSSAPI}", "sasl.mechanism: found 'GSSAPI'"),
        ("sasl: {mechanism: PLAIN, user: m}", "sasl.password: found nothing"),
        ("sasl: {mechanism: PLAIN, user: m, password: hunter2}", "not shown"),
        ("sasl: {mechanism: OAUTHBEARER, user: m, token: env:A}", "sasl.user: found a value"),
        ("sasl: {mechanism: OAUTHBEARER}", "sasl.token: found nothing"),
        (
            "tls: disabled\nsasl: {mechanism: PLAIN, user: m, password: env:A}",
            "tls: found disabled with PLAIN, which sends the secret itself",
        ),
        ("tls_verify: false", "tls_verify: found an unknown field"),
    ],
)
def test_unusable_kafka_mapping_is_refused(text: str, problem: str) -> None:
    """The error names the field; a value that may be a secret is not shown."""
    with pytest.raises(Fatal) as refused:
        _parsed(f"bootstrap: h:1\n{text}")
    assert refused.value.code == "MR-4101"
    assert problem in refused.value.message
    assert "hunter2" not in refused.value.message


def test_settings_are_those_of_librdkafka(monkeypatch: pytest.MonkeyPatch) -> None:
    """Secrets are read when a client is made, and again for the next one."""
    plain = {"bootstrap.servers": "h:1", "allow.auto.create.topics": False}
    assert _parsed("bootstrap: h:1").settings() == plain
    brokers = _parsed(f"bootstrap: h:1\ntls: verify-ca\ntls_ca: /ca.pem\n{OWN}{LOGIN}")
    expected = plain | {
        "security.protocol": "SASL_SSL",
        "ssl.endpoint.identification.algorithm": "none",
        "ssl.ca.location": "/ca.pem",
        "ssl.certificate.location": "/c.pem",
        "ssl.key.pem": "-----BEGIN PRIVATE KEY-----\nx",
        "ssl.key.password": SECRET,
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": "m",
        "sasl.password": SECRET,
    }
    assert brokers.settings() == expected
    monkeypatch.setenv("KAFKA_TEST_PASSWORD", "rotated")
    again = brokers.settings()
    assert again == expected | {"sasl.password": "rotated", "ssl.key.password": "rotated"}


def test_spark_options_refer_to_files_with_the_secrets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No option holds a secret; the files are readable only by their owner. The next query has rotated secrets."""
    certificate = tmp_path / "c.pem"
    certificate.write_text("chain")
    folder = tmp_path / "secrets"
    folder.mkdir()
    own = OWN.replace("/c.pem", str(certificate))
    brokers = _parsed(f"bootstrap: h:1\ntls_ca: /ca.pem\n{own}{LOGIN}")
    options = source_options(brokers, folder)
    assert SECRET not in str(options)
    assert "PRIVATE KEY" not in str(options)
    assert options["kafka.sasl.jaas.config"] == f"${{millrace:{folder}:jaas}}"
    assert options["kafka.ssl.truststore.location"] == "/ca.pem"
    quoted = 'username="m" password="pa\\"ss\\\\word\\011ß";'
    assert (folder / "jaas").read_text() == JAAS + quoted
    assert (folder / "key_password").read_text() == SECRET
    assert (folder / "certificate").read_text() == "chain"
    assert {stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()} == {0o600}
    monkeypatch.setenv("KAFKA_TEST_PASSWORD", "rotated")
    assert source_options(brokers, folder) == options
    assert (folder / "jaas").read_text() == f'{JAAS}username="m" password="rotated";'


def test_open_brokers_need_no_options(tmp_path: Path) -> None:
    """No file is written."""
    brokers = _parsed("bootstrap: h:1")
    assert source_options(brokers, tmp_path) == {
        "kafka.bootstrap.servers": "h:1",
        "kafka.allow.auto.create.topics": "false",
    }
    assert token_url(brokers, tmp_path) == ""
    assert not list(tmp_path.iterdir())


def test_spark_takes_only_json_web_tokens(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """librdkafka takes any token, such as one of Amazon MSK."""
    monkeypatch.setenv("KAFKA_TEST_TOKEN", "aHR0cHM6Ly9rYWZrYS4")
    reference = SecretReference(SecretPlace.ENVIRONMENT, "KAFKA_TEST_TOKEN")
    brokers = Brokers("h:1", sasl=Sasl(Mechanism.OAUTHBEARER, reference))
    assert "oauth_cb" in brokers.settings()
    with pytest.raises(Fatal) as refused:
        source_options(brokers, tmp_path)
    assert refused.value.code == "MR-7008"
    assert "KAFKA_TEST_TOKEN" in refused.value.message


def test_query_ends_before_its_token(tmp_path: Path) -> None:
    """Spark's client reads a token once. A token that has expired ends the query at once."""
    assert token_end(tmp_path) is None
    for life_s in (1000, -1000):
        claims = json.dumps({"exp": time.time() + life_s}).encode()
        (tmp_path / "token").write_text(f"a.{base64.urlsafe_b64encode(claims).decode()}.b")
        end_s = token_end(tmp_path)
        assert end_s is not None
        assert end_s - time.time() == pytest.approx(0.8 * life_s, abs=5)


def test_key_that_java_can_not_read_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """librdkafka reads the older form, too."""
    monkeypatch.setenv("KAFKA_TEST_KEY", "-----BEGIN RSA PRIVATE KEY-----\nx")
    with pytest.raises(Fatal) as refused:
        source_options(_parsed(f"bootstrap: h:1\n{OWN}"), tmp_path)
    assert refused.value.code == "MR-7007"


def test_token_is_read_from_its_file_at_each_request(tmp_path: Path) -> None:
    """Its claim `exp` says when librdkafka asks again; another token is asked for every few minutes.

    A missing file is an error of the settings: librdkafka only reports that no token came in time.
    """
    path = tmp_path / "token"
    reference = SecretReference(SecretPlace.FILE, str(path))
    brokers = Brokers("h:1", sasl=Sasl(Mechanism.OAUTHBEARER, reference))
    with pytest.raises(Fatal, match="MR-4106"):
        brokers.settings()
    claims = base64.urlsafe_b64encode(b'{"exp": 4000000000}').decode().rstrip("=")
    path.write_text(f"x.{claims}.\n")
    ask: Any = brokers.settings()["oauth_cb"]
    assert ask("") == (f"x.{claims}.", 4e9)
    path.write_text("opaque")
    token, expires_s = ask("")
    assert token == "opaque"
    assert 0 < expires_s - time.time() < 600


@pytest.mark.parametrize("token", ["", "a", "a.b.c", "a.e30.", "a.bnVsbA.", "a.eyJleHAiOiJ4In0."])
def test_token_without_an_expiry_is_no_error(token: str) -> None:
    """Not every token is a JSON Web Token."""
    assert expiry_of(token) is None
