"""Logs are structured and hold no secrets."""

import json

import pytest

from millrace import log
from millrace.errors import Fatal


@pytest.mark.parametrize(
    "name", ["password", "passwd", "source_password", "token", "client_secret", "Authorization"]
)
def test_secret_values_are_not_logged(name: str) -> None:
    """The name of a field decides, at any depth."""
    event = log.redact(None, "info", {"event": "x", name: "hush", "nested": {name: ["hush"]}})
    assert "hush" not in repr(event)


def test_credentials_in_a_url_are_removed() -> None:
    """The rest of the URL stays readable."""
    event = log.redact(None, "info", {"url": "http://me:hush@127.0.0.1:8081/subjects"})
    assert event["url"] == f"http://{log.REDACTED}@127.0.0.1:8081/subjects"


def test_absent_secret_is_distinguished_from_a_hidden_one() -> None:
    """`password=None` is a diagnosis, not a secret."""
    assert log.redact(None, "info", {"password": None}) == {"password": None}


def test_product_error_is_logged_with_code_and_fix(capsys: pytest.CaptureFixture[str]) -> None:
    """The log is one JSON line on standard error that an operator can act on."""
    log.configure(json=True, level="info")
    log.get_logger("test").error("task stopped", error=Fatal("MR-8003", "no network", host="h"))
    line = json.loads(capsys.readouterr().err)
    assert line["code"] == "MR-8003"
    assert line["fix"]
    assert (line["error"], line["host"], line["component"]) == ("no network", "h", "test")


def test_events_below_the_log_level_are_dropped(capsys: pytest.CaptureFixture[str]) -> None:
    """At level info, debug events are dropped."""
    log.configure(json=True, level="info")
    log.get_logger("test").debug("noise")
    assert capsys.readouterr().err == ""


def test_unknown_log_level_is_refused() -> None:
    """A typo is an error."""
    with pytest.raises(ValueError, match="loud"):
        log.configure(json=True, level="loud")
