"""Reads and writes the contents of the nodes under ``sets/`` and ``tasks/``. Pure: no session.

A task node: ``{"format":1,"document":{…},"paused_by":"","resumed":0}``, and ``decision`` while one waits for the task's
next owner (``schemas.requests.decision``). ``revision`` is the node's mzxid. It identifies
one state of the node, even if the node is deleted and created again. Every action of an operator gives a new revision,
and a blocked task waits for one.

Guarantees: a node that can't be read becomes an ``UnreadableEntry`` with its error. It does not affect other nodes.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from types import MappingProxyType

from millrace.errors import Fatal
from millrace.log import get_logger
from millrace.schemas.documents import (
    Directives,
    Member,
    RelayMode,
    RelayTask,
    SetDocument,
    TaskDocument,
    canonical_json,
    parse_set,
    parse_task,
    plain_set,
    plain_task,
)
from millrace.schemas.json_input import load_json
from millrace.schemas.requests.decision import Decision, decision_of, decision_to_plain
from millrace.zk.client.session import Node
from millrace.zk.tree.paths import decode, encode

ENTRIES_MAX = 4096  # parsed nodes kept, about 1 kB each: each round of a worker or scheduler reads all of them
NODE_BYTES_MAX = 512 * 1024  # half of ZooKeeper's default limit
WORK_FOLDERS = ("tasks", "sets", "directives")  # from them follows what workers run

log = get_logger("zk.tree.entries")


@dataclass(frozen=True, slots=True)
class SetEntry:
    """A set in the tree."""

    document: SetDocument
    version: int
    revision: int
    created: int  # czxid


@dataclass(frozen=True, slots=True)
class Desired:
    """The desired state of a task. ``resumed`` counts `task resume`; it serves only to change the revision.

    ``decision`` waits for the next owner. A new document has none: it was made about the old one.
    """

    document: TaskDocument
    paused_by: str = ""
    resumed: int = 0
    decision: Decision | None = None


@dataclass(frozen=True, slots=True)
class TaskEntry:
    """A task in the tree."""

    desired: Desired
    version: int
    revision: int
    created: int  # czxid: the order in which tasks were created

    @property
    def document(self) -> TaskDocument:
        """The task document."""
        return self.desired.document

    @property
    def paused_by(self) -> str:
        """The operator who paused it; "" while it is not paused."""
        return self.desired.paused_by


@dataclass(frozen=True, slots=True)
class RelayEntry:
    """A relay that runs without tasks. It follows from its set's node, with which it was created."""

    document: RelayTask
    paused_by: str
    revision: int
    created: int


WorkEntry = TaskEntry | RelayEntry


@dataclass(frozen=True, slots=True)
class UnreadableEntry:
    """A node that can't be read, and the error."""

    error: Fatal
    version: int
    revision: int


def set_content(document: SetDocument) -> bytes:
    """The content of a set node."""
    return canonical_json(plain_set(document)).encode()


def directives_content(directives: Directives) -> bytes:
    """The content of a directives node."""
    pinned = "" if directives.pinned is None else str(directives.pinned)
    plain: dict[str, object] = {
        "pinned": pinned,
        "drained": sorted(map(str, directives.drained)),
        "relay_paused_by": directives.relay_paused_by,
        "relay_purge": directives.relay_purge,
        "relay_resumed": directives.relay_resumed,
    }
    return encode(plain)


def directives_of(content: bytes, path: str) -> Directives:
    """The directives in a node. Fatal MR-4011."""
    plain = decode(content, path)
    pinned, drained = plain.get("pinned", ""), plain.get("drained", [])
    paused_by, purge = plain.get("relay_paused_by", ""), plain.get("relay_purge", "")
    resumed = plain.get("relay_resumed", 0)
    if not isinstance(pinned, str) or not isinstance(drained, list):
        raise Fatal("MR-4011", f"{path}: pinned must be text and drained a list")
    if not isinstance(paused_by, str) or not isinstance(purge, str):
        raise Fatal("MR-4011", f"{path}: relay_paused_by and relay_purge must be text")
    if not isinstance(resumed, int):
        raise Fatal("MR-4011", f"{path}: relay_resumed must be an integer")
    try:
        return Directives(
            Member.parse(pinned) if pinned else None,
            frozenset(Member.parse(str(member)) for member in drained),
            paused_by,
            purge,
            resumed,
        )
    except ValueError as error:
        raise Fatal("MR-4011", f"{path}: {error}") from error


def task_content(desired: Desired) -> bytes:
    """The content of a task node."""
    plain: dict[str, object] = {
        "document": plain_task(desired.document),
        "paused_by": desired.paused_by,
        "resumed": desired.resumed,
    }
    if desired.decision is not None:
        plain["decision"] = decision_to_plain(desired.decision)
    return encode(plain)


@lru_cache(maxsize=ENTRIES_MAX)
def set_entry(node: Node, *, name: str) -> SetEntry | UnreadableEntry:
    """Read a set node. A node that was read before is not parsed again."""
    try:
        document = parse_set(_json(node.content, name), origin="set node")
        _check_name(document.name, name)
    except Fatal as error:
        return UnreadableEntry(error, node.version, node.mzxid)
    return SetEntry(document, node.version, node.mzxid, created=node.czxid)


@lru_cache(maxsize=ENTRIES_MAX)
def task_entry(node: Node, *, name: str) -> TaskEntry | UnreadableEntry:
    """Read a task node. A node that was read before is not parsed again."""
    try:
        _check_size(node.content, name)
        plain = decode(node.content, f"tasks/{name}")
        document = parse_task(plain.get("document"), origin="task node")
        _check_name(document.name, name)
        paused_by, resumed = plain.get("paused_by", ""), plain.get("resumed", 0)
        if not isinstance(paused_by, str) or not isinstance(resumed, int):
            raise Fatal("MR-4011", f"tasks/{name}: paused_by must be text and resumed an integer")
        decision = decision_of(plain.get("decision"), origin=f"tasks/{name}")
    except Fatal as error:
        return UnreadableEntry(error, node.version, node.mzxid)
    desired = Desired(document, paused_by, resumed, decision)
    return TaskEntry(desired, node.version, node.mzxid, created=node.czxid)


def task_entries(nodes: Mapping[str, Node]) -> dict[str, TaskEntry | UnreadableEntry]:
    """Read all task nodes."""
    return {name: task_entry(node, name=name) for name, node in nodes.items()}


def set_entries(nodes: Mapping[str, Node]) -> dict[str, SetEntry | UnreadableEntry]:
    """Read all set nodes."""
    return {name: set_entry(node, name=name) for name, node in nodes.items()}


def relay_entries(
    sets: Mapping[str, SetEntry | UnreadableEntry], directives: Mapping[str, Node]
) -> dict[str, RelayEntry]:
    """The relays that run without tasks, by name: those of the sets with ``relay: always``.

    The revision changes with the set and with its directives. Directives that can't be read are ignored here.
    """
    found = {}
    for name, entry in sets.items():
        if isinstance(entry, UnreadableEntry) or entry.document.relay.mode is not RelayMode.ALWAYS:
            continue
        relay, node = RelayTask(name), directives.get(name)
        revision = max(entry.revision, node.mzxid if node is not None else 0)
        paused_by = _relay_paused_by(node, name)
        found[relay.name] = RelayEntry(relay, paused_by, revision, entry.created)
    return found


def work_entries(
    nodes: Mapping[str, Mapping[str, Node]],
) -> Mapping[str, WorkEntry | UnreadableEntry]:
    """Everything that workers run, by name. ``nodes``: those of ``WORK_FOLDERS``, by folder."""
    relays = relay_entries(set_entries(nodes["sets"]), nodes["directives"])
    return MappingProxyType({**task_entries(nodes["tasks"]), **relays})


def _relay_paused_by(node: Node | None, name: str) -> str:
    if node is None:
        return ""
    try:
        return directives_of(node.content, f"directives/{name}").relay_paused_by
    except Fatal as error:
        log.warning("directives ignored", set=name, error=error)
        return ""


def paused(desired: Desired, *, by: str) -> Desired:
    """The same task, paused by ``by``."""
    return replace(desired, paused_by=by)


def resumed(desired: Desired) -> Desired:
    """The same task, not paused, and with a new revision so that a blocked one starts again."""
    return replace(desired, paused_by="", resumed=desired.resumed + 1)


def decided(desired: Desired, decision: Decision | None) -> Desired:
    """The same task with this decision for its next owner, or without one."""
    return replace(desired, decision=decision)


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
