"""The passwords and tokens of a local stack: random, one in a file, readable only by their owner."""

import secrets
from dataclasses import dataclass
from pathlib import Path

from millrace.schemas.documents import SecretPlace, SecretReference


@dataclass(frozen=True, slots=True)
class SecretFiles:
    folder: Path

    def text(self, name: str) -> str:
        """The secret in the file of that name. The first call creates it; killed, it leaves no empty file.

        An empty file, as an earlier version could leave it, is replaced.
        """
        path = self.path(name)
        if not path.exists() or not path.stat().st_size:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            scratch = path.with_name(f"{path.name}.new")
            scratch.unlink(missing_ok=True)
            scratch.touch(mode=0o600)
            scratch.write_text(secrets.token_urlsafe(18))
            scratch.rename(path)
        return path.read_text()

    def path(self, name: str) -> Path:
        return self.folder / name

    def reference(self, name: str) -> SecretReference:
        """The file, as documents and variables refer to it."""
        return SecretReference(SecretPlace.FILE, str(self.path(name)))
