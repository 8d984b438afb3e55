"""The layout of a cluster in ZooKeeper: the paths, and the JSON in the small nodes.

    /millrace/<cluster>          {"format":1,"generation":1}      the generation, see zk/lease/epoch.py
    ├── sets/<set>               a set document
    ├── directives/<set>         {"format":1,"pinned":"","drained":["host:port"]}   an operator's wishes about members
    ├── tasks                    its version counts the writes of documents: sets and tasks
    ├── tasks/<task>             {"format":1,"document":{…},"paused_by":"","resumed":0}   desired state
    ├── workers/<worker>         {"format":1,"kind":"capture","relays":["…"],…} ephemeral: a live worker
    ├── drained/<worker>         {"format":1,"by":"…"}                an operator's wish: it receives no units
    ├── wishes/<unit>            {"format":1,"worker":"…","by":"…"}   an operator's wish: the unit's worker
    ├── assignments/<task>       {"format":1,"worker":"…",…}                  the worker that should own the task
    ├── owners/<task>            {"format":1,"worker":"…"}                    ephemeral: the owner; czxid → epoch
    ├── status/<task>            a report (schemas/status.py)
    ├── installation             {"format":1,"id":"…"}                random, written by the first worker that asks
    ├── history/<kind>:<name>    the former documents of a set or task, see zk/tree/history.py
    ├── starts/<task>            a start that has not ended, see zk/lease/starts.py
    ├── subscribers              its version counts the writes of subscribers
    ├── subscribers/<subscriber> a consumer of topics that tasks write, see zk/tree/subscribers.py
    ├── snapshots/<task>         an operator's requests for snapshots, see schemas/requests/snapshot_request.py
    ├── leader                   {"format":1,"scheduler":"…","version":"…"}   ephemeral: the scheduler that leads
    └── reign                    {"format":1,"scheduler":"…"}                 its version fences old leaders

ZooKeeper is not on the data path: if all of it is lost, no row is lost.
"""

import json
from dataclasses import dataclass

from millrace.errors import Fatal
from millrace.schemas.documents import NAME_WANTED, is_name
from millrace.schemas.json_input import load_json
from millrace.zk.client.session import Session

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
        """The cluster's own node, which holds the generation."""
        return f"{ROOT}/{self.cluster}"

    @property
    def leader(self) -> str:
        """The scheduler that leads."""
        return f"{self.root}/leader"

    @property
    def installation(self) -> str:
        """The installation's id. It differs from all others, even from one with the same cluster name elsewhere."""
        return f"{self.root}/installation"

    @property
    def reign(self) -> str:
        """Its version fences older leaders."""
        return f"{self.root}/reign"

    def folder(self, name: str) -> str:
        """One of ``FOLDERS``."""
        return f"{self.root}/{name}"

    def set(self, name: str) -> str:
        """A set document."""
        return f"{self.root}/sets/{name}"

    def directives(self, set_name: str) -> str:
        """An operator's wishes about the members of a set."""
        return f"{self.root}/directives/{set_name}"

    def task(self, name: str) -> str:
        """A task's desired state."""
        return f"{self.root}/tasks/{name}"

    def history(self, kind: str, name: str) -> str:
        """The former documents of a set or task."""
        return f"{self.root}/history/{kind}:{name}"

    def worker(self, name: str) -> str:
        """A live worker."""
        return f"{self.root}/workers/{name}"

    def drained(self, worker: str) -> str:
        """The wish that a worker receives no units."""
        return f"{self.root}/drained/{worker}"

    def wish(self, unit: str) -> str:
        """The wish where a unit runs."""
        return f"{self.root}/wishes/{unit}"

    def assignment(self, task: str) -> str:
        """The worker that should own a task."""
        return f"{self.root}/assignments/{task}"

    def owner(self, task: str) -> str:
        """The worker that owns a task."""
        return f"{self.root}/owners/{task}"

    def status(self, task: str) -> str:
        """The last report of a task's owner."""
        return f"{self.root}/status/{task}"

    def starts(self, task: str) -> str:
        """A start of a task that has not ended."""
        return f"{self.root}/starts/{task}"

    def snapshots(self, task: str) -> str:
        """The requests for snapshots of a task."""
        return f"{self.root}/snapshots/{task}"

    def subscriber(self, name: str) -> str:
        """A consumer of topics that tasks write."""
        return f"{self.root}/subscribers/{name}"


FOLDERS = (
    "sets",
    "directives",
    "tasks",
    "history",
    "workers",
    "drained",
    "wishes",
    "assignments",
    "owners",
    "status",
    "starts",
    "snapshots",
    "subscribers",
)


def create_tree(session: Session, tree: Tree) -> None:
    """Create the missing nodes of the tree and leave the others unchanged. Many processes may do it at once.

    It reads first: a login that may only read is refused even the creation of a node that exists.
    """
    wanted = {tree.root: encode({"generation": 1})}
    wanted |= {tree.folder(folder): b"" for folder in FOLDERS}
    wanted[tree.reign] = encode({"scheduler": ""})
    for path, content in wanted.items():
        if session.get(path) is None:
            session.create(path, content)


def encode(plain: dict[str, object]) -> bytes:
    """The content of a small node; adds the format number."""
    return json.dumps(
        {"format": TREE_FORMAT, **plain}, sort_keys=True, separators=(",", ":")
    ).encode()


def decode(content: bytes, path: str) -> dict[str, object]:
    """The fields of a small node. Fatal MR-4011 when it is malformed or has another format."""
    try:
        plain = load_json(content)
    except ValueError as exc:
        raise Fatal("MR-4011", f"{path} is not JSON") from exc
    if not isinstance(plain, dict):
        raise Fatal("MR-4011", f"{path} is not a JSON object")
    version = plain.get("format")
    if version != TREE_FORMAT:
        raise Fatal(
            "MR-4011",
            f"{path} has format {version!r}; this version of Millrace reads {TREE_FORMAT}",
        )
    return plain


def text_field(content: bytes, path: str, name: str) -> str:
    """One text field of a small node. Fatal MR-4011 when it is missing."""
    value = decode(content, path).get(name)
    if not isinstance(value, str):
        raise Fatal("MR-4011", f"{path} has no text field {name!r}")
    return value
