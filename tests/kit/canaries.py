"""Searches for planted secrets: in files, in the arguments and environments of processes, in text."""

import mmap
from collections.abc import Iterator, Mapping
from pathlib import Path


def in_files(folder: Path, secrets: Mapping[str, str]) -> list[str]:
    """``name: path`` for each file below ``folder`` that contains a secret, sorted by path."""
    found = []
    for path in sorted(folder.rglob("*")):
        try:
            if not path.is_file() or not path.stat().st_size:
                continue
            with (
                path.open("rb") as file,
                mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content,
            ):
                found += [
                    f"{name}: {path}"
                    for name, secret in secrets.items()
                    if content.find(secret.encode()) >= 0
                ]
        except (FileNotFoundError, ValueError):  # deleted or emptied meanwhile
            continue
    return found


def in_processes(secrets: Mapping[str, str]) -> list[str]:
    """``name: /proc/PID/…`` for each process whose arguments or environment contain a secret."""
    return [
        f"{name}: {path}" for path in _process_files() for name in shown(_content(path), secrets)
    ]


def shown(text: bytes | str, secrets: Mapping[str, str]) -> list[str]:
    """The names of the secrets that a text contains."""
    content = text.encode() if isinstance(text, str) else text
    return [name for name, secret in secrets.items() if secret.encode() in content]


def _process_files() -> Iterator[Path]:
    for process in Path("/proc").glob("[0-9]*"):
        yield from (process / "cmdline", process / "environ")


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:  # the process has ended
        return b""
