"""What the commands about sets and tasks share: reading a file, a session with a store, printing."""

import getpass
import json
import os
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

from millrace.errors import Fatal
from schemas.documents import plain_from_yaml
from zk.ensemble import Ensemble
from zk.session import Session
from zk.store import Store
from zk.tree import Tree

PLAIN_WIDTH = (
    220  # columns when the output is no terminal: nothing is cut that a script may look for
)


@dataclass(frozen=True, slots=True)
class Control:
    """One command's view of the cluster."""

    session: Session
    tree: Tree
    store: Store


@contextmanager
def control() -> Iterator[Control]:
    """A session to the ensemble that the environment names."""
    ensemble = Ensemble.from_environment()
    with ensemble.session() as session:
        yield Control(session, ensemble.tree, Store(session, ensemble.tree))


def plain_from_file(path: str) -> object:
    """The one YAML document in a file, ``-`` being the standard input."""
    try:
        text = sys.stdin.read() if path == "-" else Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as exc:
        reason = exc.strerror if isinstance(exc, OSError) else "not UTF-8 text"
        raise Fatal("MR-4206", f"{path} can't be read: {reason}") from exc
    return plain_from_yaml(text, origin=origin_of(path))


def origin_of(path: str) -> str:
    """What errors call a file."""
    return "the document on the standard input" if path == "-" else path


def operator() -> str:
    """Who asks: user@host, for people to ask back."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a container's user without a name
        user = f"uid {os.getuid()}"
    return f"{user}@{socket.gethostname()}"


def print_json(plain: object) -> None:
    """One JSON value on one line."""
    print(json.dumps(plain, ensure_ascii=False), flush=True)


def console() -> Console:
    """Standard output; wide when it is no terminal. What stands in brackets is text, whoever named it so."""
    return Console(
        width=None if sys.stdout.isatty() else PLAIN_WIDTH, highlight=False, markup=False
    )


def a_table(*columns: str) -> Table:
    """A plain table with these heads."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        table.add_column(column, overflow="fold")
    return table
