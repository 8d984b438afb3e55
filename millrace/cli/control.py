"""Shared by the commands for sets and tasks: a session with a store, reading a file, printing."""

import getpass
import json
import os
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

from millrace.errors import Fatal, Retryable
from millrace.schemas.documents import plain_from_yaml
from millrace.zk.client.session import Session
from millrace.zk.ensemble import Ensemble
from millrace.zk.tree.history import Author
from millrace.zk.tree.paths import Tree
from millrace.zk.tree.store import Store

STOP_TIMEOUT_S = 60.0
POLL_S = 0.1
PLAIN_WIDTH = 220  # columns if the output is not a terminal, so that a script sees whole cells


@dataclass(frozen=True, slots=True)
class Control:
    """The session and the store of one command."""

    session: Session
    tree: Tree
    store: Store


@contextmanager
def control(command: str = "") -> Iterator[Control]:
    """A session to the ensemble that the environment names. A ``command`` that writes documents is recorded."""
    ensemble = Ensemble.from_environment()
    with ensemble.session() as session:
        author = Author(operator(), command)
        yield Control(session, ensemble.tree, Store(session, ensemble.tree, author=author))


def wait_until_free(now: Control, name: str) -> None:
    """Wait until the worker of a task or a relay has released it. Retryable MR-4013 if it does not."""
    deadline_s = time.monotonic() + STOP_TIMEOUT_S
    while now.session.get(now.tree.owner(name)) is not None:
        if time.monotonic() > deadline_s:
            raise Retryable("MR-4013", f"{name} was asked to stop and still runs")
        time.sleep(POLL_S)


def plain_from_file(path: str) -> object:
    """The YAML document in a file; ``-`` is standard input. Fatal MR-4206 when it can't be read."""
    return plain_from_yaml(text_from_file(path), origin=origin_of(path))


def text_from_file(path: str) -> str:
    """The text of a file; ``-`` is standard input. Fatal MR-4206 when it can't be read."""
    try:
        return sys.stdin.read() if path == "-" else Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as exc:
        reason = exc.strerror if isinstance(exc, OSError) else "not UTF-8 text"
        raise Fatal("MR-4206", f"{path} can't be read: {reason}") from exc


def origin_of(path: str) -> str:
    """The file's name in errors."""
    return "the document on standard input" if path == "-" else path


def operator() -> str:
    """``user@host`` of this process, recorded with a pause and with a document."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a user without a name, as in a container
        user = f"uid {os.getuid()}"
    return f"{user}@{socket.gethostname()}"


def print_json(plain: object) -> None:
    """One JSON value on one line."""
    print(json.dumps(plain, ensure_ascii=False), flush=True)


def console() -> Console:
    """Standard output, wide if it is not a terminal. Rich markup is off: a name may contain brackets."""
    return Console(
        width=None if sys.stdout.isatty() else PLAIN_WIDTH, highlight=False, markup=False
    )


def new_table(*columns: str) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        table.add_column(column, overflow="fold")
    return table
