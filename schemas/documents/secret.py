"""References to secrets: ``env:NAME``, ``file:/path`` or ``exec:/program argument …``.

The secret itself is never stored, logged or sent.

Guarantees: the text of a reference never contains the secret. Only ``resolve_secret`` reads it, in the process that
uses it and at the time of use, so a rotated secret takes effect at the next connection.

``exec:`` runs a program without a shell; the secret is its output. Documents come from ZooKeeper, so a process runs
programs only if its own environment has MILLRACE_SECRETS_EXEC=allow. No error repeats the output.
Not done here: encryption, clients of vaults.
"""

import errno
import os
import re
import select
import shlex
import signal
import subprocess
import threading
import time
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from millrace.errors import Fatal, MillraceError, Retryable
from millrace.process.privacy import hidden_from_services, reader
from millrace.process.shortage import shortage_of

SECRET_BYTES_MAX = 64 * 1024  # a password or key file; a larger file is a wrong path
PROGRAM_S_MAX = 10.0  # a vault answers in less; a login waits for it
PROGRAM_PAUSE_S = 10.0  # between two runs of the program for clients that have not logged in
EXEC_ALLOWED = ("MILLRACE_SECRETS_EXEC", "allow")

_ENVIRONMENT_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class SecretPlace(StrEnum):
    """Where a process finds a secret."""

    ENVIRONMENT = "env"
    FILE = "file"
    PROGRAM = "exec"


@dataclass(frozen=True, slots=True)
class SecretReference:
    """The place of a secret."""

    place: SecretPlace
    name: str

    @classmethod
    def parse(cls, text: str) -> "SecretReference | None":
        """``None`` if the text is not a reference. It may be a secret, so callers must not show it."""
        prefix, colon, name = text.partition(":")
        if not colon:
            return None
        if prefix == SecretPlace.ENVIRONMENT and _ENVIRONMENT_NAME.fullmatch(name):
            return cls(SecretPlace.ENVIRONMENT, name)
        for place in (SecretPlace.FILE, SecretPlace.PROGRAM):
            if prefix == place and name.startswith("/") and "\0" not in name:
                return cls(place, name)
        return None

    def __str__(self) -> str:
        return f"{self.place}:{self.name}"


def resolve_secret(reference: SecretReference) -> str:
    """Read the secret. One trailing line end of a file or an output is dropped.

    Fatal MR-4106; Retryable MR-4014. For a program also Fatal MR-7032, and MR-7033: Retryable if it may work later.
    """
    if reference.place is SecretPlace.ENVIRONMENT:
        value = os.environ.get(reference.name)
        if value is None:
            raise _unreadable(reference, "the environment variable is not set in this process")
    elif reference.place is SecretPlace.FILE:
        value = _text(reference, _file_content(reference))
    else:
        value = _text(reference, _output(reference))
    if not value:
        raise _unreadable(reference, "it is empty")
    return value


class AskedSecret:
    """The secret that a service compares with what its clients send, before it knows them. Thread-safe.

    Clients can't make it run programs: one runs at a time, and its secret or error is kept for ``PROGRAM_PAUSE_S``.
    """

    def __init__(self, reference: SecretReference) -> None:
        self._reference = reference
        self._lock = threading.Lock()
        self._known: str | MillraceError | None = None
        self._until_s = 0.0

    def value(self) -> str:
        """The secret; errors as ``resolve_secret``."""
        if self._reference.place is not SecretPlace.PROGRAM:
            return resolve_secret(self._reference)
        with self._lock:
            if self._known is None or time.monotonic() >= self._until_s:
                try:
                    self._known = resolve_secret(self._reference)
                except MillraceError as error:
                    self._known = error
                self._until_s = time.monotonic() + PROGRAM_PAUSE_S
            if isinstance(self._known, MillraceError):
                raise self._known
            return self._known


def _file_content(reference: SecretReference) -> bytes:
    try:
        with Path(reference.name).open("rb") as file:
            return file.read(SECRET_BYTES_MAX + 1)
    except OSError as exc:
        raise shortage_of(exc) or _unreadable(
            reference, exc.strerror or type(exc).__name__, fix=_file_fix(reference.name, exc)
        ) from exc


def _text(reference: SecretReference, content: bytes) -> str:
    if len(content) > SECRET_BYTES_MAX:
        raise _unreadable(reference, f"it is larger than {SECRET_BYTES_MAX} bytes")
    try:
        return content.decode().removesuffix("\n").removesuffix("\r")
    except UnicodeDecodeError:
        # `from None`: the original error contains the bytes of the secret
        raise _unreadable(reference, "it is not UTF-8 text") from None


def _output(reference: SecretReference) -> bytes:
    """The program's output, at most one byte more than ``SECRET_BYTES_MAX``."""
    variable, value = EXEC_ALLOWED
    if os.environ.get(variable) != value:
        raise Fatal("MR-7032", f"{reference} is refused: {variable} is not {value!r} here")
    try:
        command = shlex.split(reference.name)
    except ValueError as exc:
        raise Fatal("MR-7033", f"{reference} is not a list of arguments: {exc}") from exc
    try:
        # a separate session, so that the program's children are killed with it
        program = subprocess.Popen(  # no shell, and only if the operator allows it
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,  # it may repeat the secret
            start_new_session=True,
        )
    except OSError as exc:
        why = exc.strerror or type(exc).__name__
        raise shortage_of(exc) or Fatal("MR-7033", f"{reference} can't be run: {why}") from exc
    with program:
        try:
            output, status = _read(program)
        finally:
            _kill(program)
    if status is None:
        raise Retryable("MR-7033", f"{reference} did not end within {PROGRAM_S_MAX:g} s")
    if status != 0:
        raise Retryable("MR-7033", f"{reference} ended with status {status}")
    return output


def _read(program: "subprocess.Popen[bytes]") -> tuple[bytes, int | None]:
    """Output and exit status; no status if the time is over. Stops reading above ``SECRET_BYTES_MAX``."""
    assert program.stdout is not None
    output, until_s, poll = b"", time.monotonic() + PROGRAM_S_MAX, select.poll()
    poll.register(program.stdout, select.POLLIN | select.POLLHUP)
    while (rest_s := until_s - time.monotonic()) > 0 and poll.poll(1000 * rest_s):
        piece = os.read(program.stdout.fileno(), SECRET_BYTES_MAX)
        output += piece
        if len(output) > SECRET_BYTES_MAX:
            return output[: SECRET_BYTES_MAX + 1], 0  # refused for its size
        if not piece:
            try:
                return output, program.wait(timeout=rest_s)
            except subprocess.TimeoutExpired:
                break
    return b"", None


def _kill(program: "subprocess.Popen[bytes]") -> None:
    try:
        os.killpg(program.pid, signal.SIGKILL)
    except ProcessLookupError:
        return


def _unreadable(reference: SecretReference, why: str, *, fix: str = "") -> Fatal:
    what = f"the secret {reference} can't be read: {why}"
    return Fatal("MR-4106", what, fix=fix, reference=reference)


def _file_fix(path: str, error: OSError) -> str:
    """The fix for a file that this process can't open; "" for that of the code."""
    fix = ""
    if error.errno in (errno.EACCES, errno.EPERM):
        fix = f"Make {path} readable for {reader()}: `namei -l {path}` shows the rights of its folders, too."
    elif error.errno == errno.ENOENT:
        fix = f"Create {path} for {reader()}, or change the reference."
    if fix:
        return f"{fix}{hidden_from_services(path)} Then `millrace task resume TASK`."
    return ""


def refused_login_fix(user: str, reference: SecretReference) -> str:
    """The fix of a server that refuses an account, for the process that has read its password."""
    return (
        f"Correct the password of {user} in {reference}, as {reader()} has read it, or on the server."
        " Or correct `user` or `password` in the set document (`millrace set create -f FILE --replace`)."
        " Then `millrace task resume TASK`. A task that was running retries by itself for some minutes first."
    )
