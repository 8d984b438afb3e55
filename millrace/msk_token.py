"""A token for Amazon MSK with IAM: a program for a document's ``exec:`` (docs/cloud/msk.md).

    python -m millrace.msk_token REGION

The token is a URL, signed with Signature Version 4 in its query, which is valid for 15 minutes. It is in base64 of URLs
without padding. It equals the one of AWS's own signer but for the last parameter, User-Agent, which is not signed:

    https://kafka.REGION.amazonaws.com/?Action=kafka-cluster:Connect&X-Amz-…&X-Amz-Signature=…&User-Agent=millrace

The keys come from AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_SESSION_TOKEN, else from the AWS CLI, which knows
profiles, roles and the metadata of machines. Nothing is sent; MSK checks the token.
"""

import base64
import hashlib
import hmac
import json
import os
import re
import subprocess
import sys
from dataclasses import dataclass, field
from datetime import UTC, datetime
from urllib.parse import quote

LIFE_S = 900
_SERVICE = "kafka-cluster"
_REGION = re.compile(r"[a-z]{2}(-[a-z]+)+-\d+")
_CLI = ("aws", "configure", "export-credentials", "--format", "process")
_CLI_S_MAX = 9.0  # `exec:` waits 10 s


@dataclass(frozen=True, slots=True)
class Keys:
    """The keys of an identity; ``session`` is empty for keys that last."""

    access: str
    secret: str = field(repr=False)
    session: str = field(default="", repr=False)


def token(region: str, keys: Keys, now: datetime, *, agent: str = "millrace") -> str:
    """The token as of ``now``, in UTC."""
    host, time = f"kafka.{region}.amazonaws.com", f"{now:%Y%m%dT%H%M%SZ}"
    scope = f"{now:%Y%m%d}/{region}/{_SERVICE}/aws4_request"
    parameters = {
        "Action": f"{_SERVICE}:Connect",
        "X-Amz-Algorithm": "AWS4-HMAC-SHA256",
        "X-Amz-Credential": f"{keys.access}/{scope}",
        "X-Amz-Date": time,
        "X-Amz-Expires": str(LIFE_S),
        "X-Amz-SignedHeaders": "host",
    }
    if keys.session:
        parameters["X-Amz-Security-Token"] = keys.session
    query = "&".join(f"{name}={_escaped(value)}" for name, value in parameters.items())
    signed_query = "&".join(sorted(query.split("&")))
    request = f"GET\n/\n{signed_query}\nhost:{host}\n\nhost\n{hashlib.sha256(b'').hexdigest()}"
    digest = hashlib.sha256(request.encode()).hexdigest()
    key = f"AWS4{keys.secret}".encode()
    for part in scope.split("/"):
        key = hmac.digest(key, part.encode(), "sha256")
    text = f"AWS4-HMAC-SHA256\n{time}\n{scope}\n{digest}"
    signature = hmac.digest(key, text.encode(), "sha256").hex()
    url = f"https://{host}/?{query}&X-Amz-Signature={signature}&User-Agent={_escaped(agent)}"
    return base64.urlsafe_b64encode(url.encode()).decode().rstrip("=")


def _escaped(text: str) -> str:
    return quote(text, safe="-_.~")


def find_keys() -> Keys:
    """The keys of the environment, else of the AWS CLI. OSError, SubprocessError or ValueError without any."""
    values = [
        os.environ.get(f"AWS_{name}", "")
        for name in ("ACCESS_KEY_ID", "SECRET_ACCESS_KEY", "SESSION_TOKEN")
    ]
    if values[0] and values[1]:
        return Keys(*values)
    done = subprocess.run(
        _CLI,
        capture_output=True,
        text=True,
        check=True,
        timeout=_CLI_S_MAX,
        stdin=subprocess.DEVNULL,
    )
    answer = json.loads(done.stdout)
    try:
        return Keys(
            answer["AccessKeyId"], answer["SecretAccessKey"], answer.get("SessionToken", "")
        )
    except KeyError as missing:
        raise ValueError(f"the AWS CLI printed no {missing}") from None


def main(arguments: list[str]) -> int:
    """Print the token. 2: wrong usage; 1: no keys, with the reason on standard error."""
    if len(arguments) != 1 or not _REGION.fullmatch(arguments[0]):
        print("usage: python -m millrace.msk_token REGION, such as eu-central-1", file=sys.stderr)
        return 2
    try:
        keys = find_keys()
    except (OSError, subprocess.SubprocessError, ValueError) as error:
        print(f"no keys of AWS in the environment or from the AWS CLI: {error}", file=sys.stderr)
        return 1
    print(token(arguments[0], keys, datetime.now(UTC)))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
