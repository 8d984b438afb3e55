"""The layout of a cluster in ZooKeeper: paths, and the JSON small nodes hold.

    /millrace/<cluster>          {"format":1,"generation":1}      the ensemble's generation, see zk/epoch.py
    ├── sets/<set>               a set document
    ├── tasks/<task>             {"format":1,"document":{…},"paused_by":"","resumed":0}   desired state
    ├── workers/<worker>         {"format":1,"kind":"capture"}                ephemeral: alive
    ├── assignments/<task>       {"format":1,"worker":"…"}                    who should own it
    ├── owners/<task>            {"format":1,"worker":"…"}                    ephemeral: who does; czxid → epoch
    ├── status/<task>            a report (schemas/status.py)
    ├── leader                   {"format":1,"scheduler":"…"}                 ephemeral
    └── reign                    {"format":1,"scheduler":"…"}                 its version fences old leaders

Never on the data path: all of it can be lost without losing a row.
"""

import json
from dataclasses import dataclass

from millrace.errors import Fatal
from schemas.documents import NAME_WANTED, is_name
from schemas.plain_json import load_json
from zk.session import Session

TREE_FORMAT = 1
ROOT = "/millrace"


@dataclass(frozen=True, slots=True)
class Tree:
    """The paths of one cluster."""

    cluster: str = "default"

    def __post_init__(self) -> None:
        if not is_name(self.cluster):
            raise Fatal(
                "MR-4101",
                f"the name of the cluster is {self.cluster[:60]!r}, wanted {NAME_WANTED}",
                fix="Set MILLRACE_CLUSTER to such a name.",
            )

    @property
    def root(self) -> str:
        """The cluster's own node."""
        return f"{ROOT}/{self.cluster}"

    @property
    def leader(self) -> str:
        """Who schedules."""
        return f"{self.root}/leader"

    @property
    def reign(self) -> str:
        """Counts the leaders."""
        return f"{self.root}/reign"

    def folder(self, name: str) -> str:
        """One of ``FOLDERS``."""
        return f"{self.root}/{name}"

    def set(self, name: str) -> str:
        """A set document."""
        return f"{self.root}/sets/{name}"

    def task(self, name: str) -> str:
        """A task's desired state."""
        return f"{self.root}/tasks/{name}"

    def worker(self, name: str) -> str:
        """A living worker."""
        return f"{self.root}/workers/{name}"

    def assignment(self, task: str) -> str:
        """Who should own a task."""
        return f"{self.root}/assignments/{task}"

    def owner(self, task: str) -> str:
        """Who owns a task."""
        return f"{self.root}/owners/{task}"

    def status(self, task: str) -> str:
        """What a task's owner reports."""
        return f"{self.root}/status/{task}"


FOLDERS = ("sets", "tasks", "workers", "assignments", "owners", "status")


def lay(session: Session, tree: Tree) -> None:
    """Make what is missing of the tree; what stands is left as it is. Safe to run by many at once."""
    session.create(tree.root, encode({"generation": 1}))
    for folder in FOLDERS:
        session.create(tree.folder(folder), b"")
    session.create(tree.reign, encode({"scheduler": ""}))


def encode(plain: dict[str, object]) -> bytes:
    """A small node's content, with its format."""
    return json.dumps(
        {"format": TREE_FORMAT, **plain}, sort_keys=True, separators=(",", ":")
    ).encode()


def decode(content: bytes, path: str) -> dict[str, object]:
    """A small node's fields, or Fatal MR-4011."""
    try:
        plain = load_json(content)
    except ValueError as exc:
        raise Fatal("MR-4011", f"{path} is not JSON") from exc
    if not isinstance(plain, dict):
        raise Fatal("MR-4011", f"{path} is not a JSON object")
    version = plain.get("format")
    if version != TREE_FORMAT:
        raise Fatal("MR-4011", f"{path} has format {version!r}, this program knows {TREE_FORMAT}")
    return plain


def text_field(content: bytes, path: str, name: str) -> str:
    """One text field of a small node, or Fatal MR-4011."""
    value = decode(content, path).get(name)
    if not isinstance(value, str):
        raise Fatal("MR-4011", f"{path} has no text field {name!r}")
    return value
