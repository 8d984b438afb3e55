"""What the nodes under ``sets/`` and ``tasks/`` say: pure, content in, entry out.

A task node: ``{"format":1,"document":{…},"paused_by":"","resumed":0}``. ``revision`` (the node's mzxid) names one
state of a node, also across deletion and creation; whatever an operator does gives a new one, and that is what a
blocked task waits for.

Guarantees: a node that can't be read becomes ``Refused`` with its error, whole; it never stops the others.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from millrace.errors import Fatal
from schemas.documents import (
    SetDocument,
    TaskDocument,
    canonical_json,
    parse_set,
    parse_task,
    plain_set,
    plain_task,
)
from schemas.plain_json import load_json
from zk.session import Node
from zk.tree import decode, encode

NODE_BYTES_MAX = 512 * 1024  # half of ZooKeeper's default limit


@dataclass(frozen=True, slots=True)
class SetEntry:
    """A set as it stands in the tree."""

    document: SetDocument
    version: int
    revision: int


@dataclass(frozen=True, slots=True)
class Desired:
    """What an operator wants of a task. ``resumed`` counts `task resume`; it exists to change the revision."""

    document: TaskDocument
    paused_by: str = ""
    resumed: int = 0


@dataclass(frozen=True, slots=True)
class TaskEntry:
    """A task as it stands in the tree."""

    desired: Desired
    version: int
    revision: int
    created: int  # czxid: the order in which tasks were created

    @property
    def document(self) -> TaskDocument:
        """The task itself."""
        return self.desired.document


@dataclass(frozen=True, slots=True)
class Refused:
    """A node that can't be read, and why."""

    error: Fatal
    version: int
    revision: int


def set_content(document: SetDocument) -> bytes:
    """A set node."""
    return canonical_json(plain_set(document)).encode()


def task_content(desired: Desired) -> bytes:
    """A task node."""
    return encode(
        {
            "document": plain_task(desired.document),
            "paused_by": desired.paused_by,
            "resumed": desired.resumed,
        }
    )


def set_entry(node: Node, *, name: str) -> SetEntry | Refused:
    """Read a set node."""
    try:
        document = parse_set(_json(node.content, name), origin="set node")
        _check_name(document.name, name)
    except Fatal as error:
        return Refused(error, node.version, node.mzxid)
    return SetEntry(document, node.version, node.mzxid)


def task_entry(node: Node, *, name: str) -> TaskEntry | Refused:
    """Read a task node."""
    try:
        _check_size(node.content, name)
        plain = decode(node.content, f"tasks/{name}")
        document = parse_task(plain.get("document"), origin="task node")
        _check_name(document.name, name)
        paused_by, resumed = plain.get("paused_by", ""), plain.get("resumed", 0)
        if not isinstance(paused_by, str) or not isinstance(resumed, int):
            raise Fatal("MR-4011", f"tasks/{name}: paused_by or resumed is of another type")
    except Fatal as error:
        return Refused(error, node.version, node.mzxid)
    return TaskEntry(
        Desired(document, paused_by, resumed), node.version, node.mzxid, created=node.czxid
    )


def task_entries(nodes: Mapping[str, Node]) -> dict[str, TaskEntry | Refused]:
    """All of them."""
    return {name: task_entry(node, name=name) for name, node in nodes.items()}


def set_entries(nodes: Mapping[str, Node]) -> dict[str, SetEntry | Refused]:
    """All of them."""
    return {name: set_entry(node, name=name) for name, node in nodes.items()}


def paused(desired: Desired, *, by: str) -> Desired:
    """Stop it, and remember who asked."""
    return replace(desired, paused_by=by)


def resumed(desired: Desired) -> Desired:
    """Run it again, whatever it waits for."""
    return replace(desired, paused_by="", resumed=desired.resumed + 1)


def _json(content: bytes, name: str) -> object:
    _check_size(content, name)
    try:
        return load_json(content)
    except ValueError as exc:
        raise Fatal("MR-4011", f"the node of {name} is not JSON") from exc


def _check_size(content: bytes, name: str) -> None:
    if len(content) > NODE_BYTES_MAX:
        raise Fatal("MR-4011", f"the node of {name} is larger than {NODE_BYTES_MAX} bytes")


def _check_name(inside: str, outside: str) -> None:
    if inside != outside:
        raise Fatal("MR-4011", f"the node of {outside} holds a document named {inside!r}")
