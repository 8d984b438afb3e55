"""The requests of other authors' client libraries, repeated over HTTP; `make chaos` checks that they make these."""

import json
from typing import Any
from uuid import uuid4

import pytest
import urllib3

from tests.kit.registry_clients.requests import REQUESTS
from tests.kit.registry_clients.scene import OURS, register

UNUSED_ID = 2**31 - 1
ABSENT = "/associations/"  # not answered, and the client takes the answer for "none"


def _asked(address: str, request: str) -> tuple[int, str, Any]:
    """Status, type and content of the answer. A POST sends the first schema."""
    method, _, path = request.partition(" ")
    body = json.dumps({"schema": OURS[0]}).encode() if method == "POST" else None
    response = urllib3.request(method, f"{address}{path}", body=body, retries=False)
    return response.status, response.headers["content-type"], json.loads(response.data)


@pytest.mark.parametrize("client", REQUESTS)
def test_each_request_of_a_client_is_answered(registry: str, client: str) -> None:
    """With the schema of the ID; an unknown ID is an error whose text the client shows."""
    topic = f"asked-{uuid4().hex[:8]}"
    number = register(registry, OURS, topic)[0]
    for template in REQUESTS[client]:
        request = template.replace("SUBJECT", f"{topic}-value").replace("TOPIC", topic)
        status, _, content = _asked(registry, request.replace("ID", str(number)))
        if ABSENT in request:
            assert (status, content["error_code"]) == (404, 404)
            continue
        assert status == 200, request
        if "ID" not in request:
            continue
        if "schema" in content or "fields" in content:
            schema = json.loads(content["schema"]) if "schema" in content else content
            assert schema == json.loads(OURS[0])
        else:
            use = {"subject": f"{topic}-value", "version": 1}
            assert content == [] if request.endswith("/references") else use in content
        status, kind, content = _asked(registry, request.replace("ID", str(UNUSED_ID)))
        assert (status, content["error_code"]) == (404, 40403)
        is_v3 = "/v3/" in request
        assert str(UNUSED_ID) in content["title" if is_v3 else "message"]
        assert not is_v3 or (kind, content["status"]) == ("application/json", 404)
