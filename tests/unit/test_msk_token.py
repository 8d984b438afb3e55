"""Tokens for Amazon MSK equal those of AWS's own signer, and the keys come from the environment or the AWS CLI.

The URLs are those of aws-msk-iam-sasl-signer-python 1.0.2 with botocore 1.44.8, at the time ``NOW``. The keys
are the examples of AWS's manuals.
"""

import base64
from datetime import UTC, datetime
from pathlib import Path

import pytest

from millrace import msk_token
from millrace.msk_token import Keys, main, token
from millrace.schemas.documents.brokers import TOKEN_LIFE_S, expiry_of

NOW = datetime(2026, 11, 27, 23, 5, 7, tzinfo=UTC)
AGENT = "aws-msk-iam-sasl-signer-python/1.0.2"
KEYS = Keys("AKIAIOSFODNN7EXAMPLE", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY")
SESSION = "IQoJb3JpZ2lu/+==~a b:%"
URLS = {
    "eu-central-1": (
        "",
        "https://kafka.eu-central-1.amazonaws.com/?Action=kafka-cluster%3AConnect&X-Amz-Algorithm=AWS4-HMAC-SHA256"
        "&X-Amz-Credential=AKIAIOSFODNN7EXAMPLE%2F20261127%2Feu-central-1%2Fkafka-cluster%2Faws4_request"
        "&X-Amz-Date=20261127T230507Z&X-Amz-Expires=900&X-Amz-SignedHeaders=host"
        "&X-Amz-Signature=e8429e3612a60fe46eaba20e9c0bd59cfdedc81fa2ad06132377b0ac596ca149"
        "&User-Agent=aws-msk-iam-sasl-signer-python%2F1.0.2",
    ),
    "us-east-1": (
        SESSION,
        "https://kafka.us-east-1.amazonaws.com/?Action=kafka-cluster%3AConnect&X-Amz-Algorithm=AWS4-HMAC-SHA256"
        "&X-Amz-Credential=AKIAIOSFODNN7EXAMPLE%2F20261127%2Fus-east-1%2Fkafka-cluster%2Faws4_request"
        "&X-Amz-Date=20261127T230507Z&X-Amz-Expires=900&X-Amz-SignedHeaders=host"
        "&X-Amz-Security-Token=IQoJb3JpZ2lu%2F%2B%3D%3D~a%20b%3A%25"
        "&X-Amz-Signature=523acfd3075c3cab50ac7d15679e5f831a8967ed6b0da58f02f8a87ac9848974"
        "&User-Agent=aws-msk-iam-sasl-signer-python%2F1.0.2",
    ),
}


def decoded(text: str) -> str:
    """The URL of a token."""
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)).decode()


@pytest.mark.parametrize("region", URLS)
def test_token_equals_that_of_the_signer_of_aws(region: str) -> None:
    """At the same second, with and without a session."""
    session, url = URLS[region]
    keys = Keys(KEYS.access, KEYS.secret, session)
    assert decoded(token(region, keys, NOW, agent=AGENT)) == url


def test_token_is_asked_for_again_before_it_expires() -> None:
    """It is no JSON Web Token: clients take the time that a token of another kind lives, which is shorter."""
    assert expiry_of(token("eu-central-1", KEYS, NOW)) is None
    assert TOKEN_LIFE_S < msk_token.LIFE_S


def test_keys_come_from_the_environment_or_the_cli(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without both, the program says so and prints no token."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert main(["eu-central-1"]) == 1
    printed = capsys.readouterr()
    assert (printed.out, "AWS CLI" in printed.err) == ("", True)
    command = tmp_path / "aws"
    command.write_text(
        '#!/bin/sh\necho \'{"Version": 1, "AccessKeyId": "AKIAFROMCLI", "SecretAccessKey": "s"}\'\n'
    )
    command.chmod(0o700)
    assert main(["eu-central-1"]) == 0
    assert "AKIAFROMCLI" in decoded(capsys.readouterr().out.strip())
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIAFROMENV")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "s")
    assert main(["eu-central-1"]) == 0
    assert "AKIAFROMENV" in decoded(capsys.readouterr().out.strip())
    assert main(["eu central"]) == 2
