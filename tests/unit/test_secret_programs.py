"""References to secrets that name a program: allowed by the environment, bounded, and never shown."""

import shlex
import time
from contextlib import suppress
from pathlib import Path

import pytest

from millrace.errors import Fatal, MillraceError, Retryable
from millrace.schemas.documents import SecretReference, resolve_secret
from millrace.schemas.documents import secret as module
from millrace.schemas.documents.secret import AskedSecret
from tests.kit.waiting import eventually


@pytest.fixture
def allowed(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """Programs are allowed."""
    monkeypatch.setenv("MILLRACE_SECRETS_EXEC", "allow")
    return monkeypatch


def _shell(script: str) -> SecretReference:
    """Return a reference to a program that runs a script."""
    return _reference(f"exec:/bin/sh -c {shlex.quote(script)}")


def _reference(text: str) -> SecretReference:
    reference = SecretReference.parse(text)
    assert reference is not None
    assert str(reference) == text
    return reference


def test_program_gives_a_secret_only_if_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A document comes from ZooKeeper: without the variable nothing is run."""
    reference = _reference("exec:/bin/echo two words")
    for value in ("", "yes", "ALLOW"):
        monkeypatch.setenv("MILLRACE_SECRETS_EXEC", value)
        with pytest.raises(Fatal) as caught:
            resolve_secret(reference)
        assert caught.value.code == "MR-7032"
    monkeypatch.setenv("MILLRACE_SECRETS_EXEC", "allow")
    assert resolve_secret(reference) == "two words"


def test_program_gets_its_arguments_without_a_shell(allowed: pytest.MonkeyPatch) -> None:
    """Quotes group words; nothing is expanded, and only one line end is dropped."""
    assert resolve_secret(_reference("exec:/bin/echo '$HOME  ;' `id` *")) == "$HOME  ; `id` *"
    assert resolve_secret(_shell("printf 'a\\n\\n'")) == "a\n"


@pytest.mark.parametrize("text", ["exec:", "exec:echo x", "exec:./x", "exec:/bin/e\0cho"])
def test_program_must_be_an_absolute_path(text: str) -> None:
    """The search path of a worker is not the operator's."""
    assert SecretReference.parse(text) is None


@pytest.mark.parametrize(
    ("text", "kind", "code"),
    [
        ("exec:/no/such/program", Fatal, "MR-7033"),
        ("exec:/etc/passwd", Fatal, "MR-7033"),
        ("exec:/bin/echo 'open", Fatal, "MR-7033"),
        ("exec:/bin/sh -c 'echo canary; echo canary >&2; exit 3'", Retryable, "MR-7033"),
        ("exec:/bin/sh -c 'echo canary; kill -9 $$'", Retryable, "MR-7033"),
        ("exec:/bin/true", Fatal, "MR-4106"),
        ("exec:/bin/sh -c 'printf canary\\\\377'", Fatal, "MR-4106"),
        ("exec:/bin/sh -c 'yes canary'", Fatal, "MR-4106"),
    ],
)
def test_failing_program_of_a_secret_is_named_without_its_output(
    allowed: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    text: str,
    kind: type[MillraceError],
    code: str,
) -> None:
    """Also one whose output has no end; neither stream appears anywhere."""
    reference = _reference(text)
    with pytest.raises(kind) as caught:
        resolve_secret(reference)
    assert caught.value.code == code
    shown = caught.value.full_message.replace(text, "") + str(capfd.readouterr())
    assert "canary" not in shown


def test_program_that_does_not_end_is_killed_with_its_children(
    allowed: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A login waits for a bounded time, and nothing is left running."""
    allowed.setattr(module, "PROGRAM_S_MAX", 0.3)
    pid = tmp_path / "pid"
    began_s = time.monotonic()
    with pytest.raises(Retryable, match="MR-7033"):
        resolve_secret(_shell(f"sleep 600 & echo $! > {pid}; wait"))
    assert time.monotonic() - began_s < 60
    eventually(lambda: not _lives(int(pid.read_text())), what="the child is dead")


def _lives(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


@pytest.mark.parametrize("status", [0, 3])
def test_clients_without_a_login_start_no_program_each(
    status: int, allowed: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A service asks for its secret at each login; a failure is kept for the same time."""
    runs = tmp_path / "runs"
    secret = AskedSecret(_shell(f"echo x >> {runs}; echo canary; exit {status}"))
    for _ in range(20):
        with suppress(MillraceError):
            assert secret.value() == "canary"
    assert runs.read_text() == "x\n"
    allowed.setattr(module, "PROGRAM_PAUSE_S", 0.0)
    rotated = AskedSecret(_shell(f"echo x >> {runs}; echo canary"))
    assert [rotated.value() for _ in range(2)] == ["canary"] * 2
    assert runs.read_text() == "x\n" * 3
