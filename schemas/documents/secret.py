"""References to secrets: ``env:NAME`` or ``file:/path``. The secret itself is never stored, logged or sent.

Guarantees: the text of a reference never contains the secret. Only ``resolve_secret`` reads it, in the process that
uses it and at the time of use, so a rotated secret takes effect at the next connection.
Not done here: encryption, external vaults.
"""

import os
import re
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from millrace.errors import Fatal
from millrace.shortage import shortage_of

SECRET_BYTES_MAX = 64 * 1024  # a password or key file; a larger file is a wrong path

_ENVIRONMENT_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class SecretPlace(StrEnum):
    """Where a process finds a secret."""

    ENVIRONMENT = "env"
    FILE = "file"


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
        if prefix == SecretPlace.FILE and name.startswith("/") and "\0" not in name:
            return cls(SecretPlace.FILE, name)
        return None

    def __str__(self) -> str:
        return f"{self.place}:{self.name}"


def resolve_secret(reference: SecretReference) -> str:
    """Read the secret. One trailing line end of a file is dropped. Fatal MR-4106, Retryable MR-4014."""
    if reference.place is SecretPlace.ENVIRONMENT:
        value = os.environ.get(reference.name)
        if value is None:
            raise _unreadable(reference, "the environment variable is not set in this process")
    else:
        value = _file_text(reference)
    if not value:
        raise _unreadable(reference, "it is empty")
    return value


def _file_text(reference: SecretReference) -> str:
    try:
        with Path(reference.name).open("rb") as file:
            content = file.read(SECRET_BYTES_MAX + 1)
    except OSError as exc:
        raise shortage_of(exc) or _unreadable(
            reference, exc.strerror or type(exc).__name__
        ) from exc
    if len(content) > SECRET_BYTES_MAX:
        raise _unreadable(reference, f"it is larger than {SECRET_BYTES_MAX} bytes")
    try:
        return content.decode().removesuffix("\n").removesuffix("\r")
    except UnicodeDecodeError:
        # `from None`: the original error contains the bytes of the secret
        raise _unreadable(reference, "it is not UTF-8 text") from None


def _unreadable(reference: SecretReference, why: str) -> Fatal:
    return Fatal("MR-4106", f"the secret {reference} can't be read: {why}", reference=reference)
