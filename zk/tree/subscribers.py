"""The subscribers of a cluster: create, replace, read, remove.

    subscribers               its version counts the writes of subscribers
    └── reports               {"format":1,"subscriber":{…},"rights":[…],"by":"ann@host"}

``rights`` are those that were printed for it, so that they can be taken away when a task's topics have changed since.
A subscriber is no document of `millrace plan` and has no history: it changes nothing that a task writes.

Guarantees: every change is a compare-and-set, also on the version of the folder. So two subscribers that exclude each
other are never both created. Creating the same subscriber twice is no error. A node that can't be read affects no
other.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from functools import lru_cache

from millrace.errors import Fatal, Retryable
from millrace.schemas.documents import is_name
from millrace.schemas.documents.subscriber import GrantedRight, Subscriber, check_subscriber
from millrace.schemas.plain import from_plain, to_plain
from millrace.zk.client.session import Change, Create, Delete, Node, Put, Session
from millrace.zk.tree.paths import Tree, decode, encode
from millrace.zk.tree.store import Outcome, retried

FOLDER = "subscribers"
_READ_MAX = 1024  # parsed nodes kept, about 1 kB each


@dataclass(frozen=True, slots=True)
class SubscriberEntry:
    """A subscriber, and the rights that were printed for it. ``by``: the operator who added it."""

    subscriber: Subscriber
    rights: tuple[GrantedRight, ...] = ()
    by: str = ""


@dataclass(frozen=True, slots=True)
class Written:
    """``gone``: rights that were printed for it before and that it does not need any more."""

    outcome: Outcome
    gone: tuple[GrantedRight, ...] = ()


class Subscribers:
    """The subscribers of one cluster."""

    def __init__(self, session: Session, tree: Tree) -> None:
        self._session, self._tree = session, tree

    def all(self) -> Mapping[str, SubscriberEntry | Fatal]:
        """Every subscriber, sorted by name; one that can't be read is its error."""
        nodes = self._session.folder(self._tree.folder(FOLDER))
        return {name: read_subscriber(node, name=name) for name, node in nodes.items()}

    def add(self, entry: SubscriberEntry, *, replace: bool = False) -> Written:
        """Create a subscriber, or replace it. Fatal MR-4103, MR-4115, MR-4101."""
        check_subscriber(entry.subscriber)
        return retried(lambda: self._add(entry, replace=replace))

    def rights_of_others(self, name: str) -> frozenset[GrantedRight]:
        """The rights that subscribers of other names have."""
        return frozenset(
            right
            for other, entry in self.all().items()
            if other != name and isinstance(entry, SubscriberEntry)
            for right in entry.rights
        )

    def remove(self, name: str) -> SubscriberEntry | Fatal:
        """Remove a subscriber; returns it, or why it could not be read. Fatal MR-4104 if there is none."""
        return retried(lambda: self._remove(name))

    def _add(self, entry: SubscriberEntry, *, replace: bool) -> Written:
        name, guard = entry.subscriber.name, self._guard()
        for other, found in self.all().items():
            if other != name and isinstance(found, SubscriberEntry):
                _check_group(entry, found)
        path = self._tree.subscriber(name)
        node = self._session.get(path)
        before = None if node is None else read_subscriber(node, name=name)
        content = encode(to_plain(entry))
        if node is None:
            self._session.commit(guard, Create(path, content))
            return Written(Outcome.CREATED)
        known = before.rights if isinstance(before, SubscriberEntry) else ()
        gone = tuple(right for right in known if right not in entry.rights)
        if isinstance(before, SubscriberEntry) and before.subscriber == entry.subscriber:
            if before.rights == entry.rights:
                return Written(Outcome.UNCHANGED)
        elif not replace:
            raise Fatal(
                "MR-4103",
                f"subscriber {name} exists with {_difference(before, entry.subscriber)}",
                fix="Compare with `millrace subscriber list`. Add --replace to replace it.",
            )
        self._session.commit(guard, Put(path, content, node.version))
        return Written(Outcome.REPLACED, gone)

    def _remove(self, name: str) -> SubscriberEntry | Fatal:
        guard, path = self._guard(), self._tree.subscriber(name)
        node = self._session.get(path) if is_name(name) else None
        if node is None:
            known = self._session.children(self._tree.folder(FOLDER))
            nearest = get_close_matches(name, known, n=1)
            hint = f"; did you mean {nearest[0]!r}?" if nearest else ""
            raise Fatal(
                "MR-4104",
                f"there is no subscriber {name!r} in cluster {self._tree.cluster}{hint}",
                fix="List them with `millrace subscriber list`.",
            )
        entry = read_subscriber(node, name=name)
        self._session.commit(guard, Delete(path, node.version))
        return entry

    def _guard(self) -> Change:
        """Raises the version of the folder, which is created in a tree of an older Millrace."""
        path = self._tree.folder(FOLDER)
        node = self._session.get(path) or self._session.create(path, b"")
        if node is None:
            raise Retryable("MR-4007", f"another process has just created {path}")
        return Put(path, node.content, node.version)


@lru_cache(maxsize=_READ_MAX)
def read_subscriber(node: Node, *, name: str) -> SubscriberEntry | Fatal:
    """Read a subscriber's node. A node that was read before is not parsed again."""
    path = f"{FOLDER}/{name}"
    try:
        return from_plain(SubscriberEntry, decode(node.content, path))
    except Fatal as error:
        return error
    except (TypeError, ValueError, KeyError, OverflowError) as error:
        return Fatal("MR-4011", f"{path} can't be read: {error}")


def subscribers_of(
    entries: Mapping[str, SubscriberEntry | Fatal], task: str
) -> tuple[Subscriber, ...]:
    """The subscribers of a task's topics; one that can't be read is left out."""
    return tuple(
        entry.subscriber
        for entry in entries.values()
        if isinstance(entry, SubscriberEntry) and task in entry.subscriber.tasks
    )


def _check_group(entry: SubscriberEntry, other: SubscriberEntry) -> None:
    """Fatal MR-4115 if both read with one group of the same brokers: each would get a part of the records."""
    group, theirs = entry.subscriber.group, other.subscriber
    if group == theirs.group and not _servers(entry).isdisjoint(_servers(other)):
        raise Fatal("MR-4115", f"subscriber {theirs.name} reads with the consumer group {group}")


def _servers(entry: SubscriberEntry) -> set[str]:
    return {server for right in entry.rights for server in right.bootstrap.lower().split(",")}


def _difference(before: SubscriberEntry | Fatal | None, wanted: Subscriber) -> str:
    if not isinstance(before, SubscriberEntry):
        return "contents that can't be read"
    old, new = to_plain(before.subscriber), to_plain(wanted)
    return ", ".join(
        f"{name} {_shown(old[name])} (not {_shown(new[name])})"
        for name in old
        if old[name] != new[name]
    )


def _shown(value: object) -> str:
    return (" ".join(map(str, value)) or "all") if isinstance(value, list) else str(value)
