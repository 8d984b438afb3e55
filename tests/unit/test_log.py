"""Logs are structured and hold no secrets."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from structlog import DropEvent

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


WARNINGS = st.sampled_from(
    [
        ("waits", "no answer in 3 s"),
        ("waits", "no answer in 4.5 s"),
        ("waits", "refused"),
        ("late", ""),
    ]
)


@given(st.lists(st.tuples(WARNINGS, st.sampled_from(["a", "b"]), st.integers(0, 90)), max_size=60))
def test_repeated_warning_is_printed_on_change_and_once_a_minute(
    steps: list[tuple[tuple[str, str], str, int]],
) -> None:
    """A changed text is printed at once, the same text after a minute, with the number of dropped lines."""
    now_s = [0.0]
    printed: dict[tuple[str, str], tuple[str, float]] = {}
    dropped: dict[tuple[str, str], int] = {}
    repeats = log.Repeats(clock=lambda: now_s[0])
    for (words, error), task, passed_s in steps:
        now_s[0] += passed_s
        event: dict[str, object] = {
            "event": words,
            "error": error,
            "task": task,
            "failures": len(steps),
        }
        text = error.partition(" in ")[0]
        last_text, last_s = printed.get((words, task), ("?", 0.0))
        is_due = text != last_text or now_s[0] - last_s >= log.REPEAT_S
        try:
            found = repeats.drop_repeated(None, "warning", event)
        except DropEvent:
            assert not is_due
            dropped[words, task] = dropped.get((words, task), 0) + 1
            continue
        assert is_due
        count = dropped.pop((words, task), 0) if text == last_text else 0
        assert found.get("repeated", 0) == count
        dropped.pop((words, task), None)
        printed[words, task] = text, now_s[0]


def test_warning_after_news_is_printed_again() -> None:
    """A task that an operator resumes, and that is blocked again by the same error, is a new line."""
    repeats = log.Repeats(clock=lambda: 0.0)
    blocked = {"event": "task blocked", "error": "no", "task": "a"}
    repeats.drop_repeated(None, "warning", dict(blocked))
    with pytest.raises(DropEvent):
        repeats.drop_repeated(None, "warning", dict(blocked))
    repeats.drop_repeated(None, "info", {"event": "task started", "task": "a"})
    assert repeats.drop_repeated(None, "warning", dict(blocked)) == blocked


def test_loop_logs_its_error_once(capsys: pytest.CaptureFixture[str]) -> None:
    """As while ZooKeeper is down: every round of every loop has the same error."""
    log.configure(json=True, level="info")
    for _ in range(20):
        log.get_logger("test").warning("waits for ZooKeeper", error=Fatal("MR-8003", "away"))
    assert capsys.readouterr().err.count("waits for ZooKeeper") == 1
