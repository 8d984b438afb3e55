"""Which files tasks and readers need: each holder keeps the files from its place on, until it releases them.

A holder may have an owner, the name of its task. ``evict`` releases the holds of a task that an operator named. Its
readers then raise Fatal MR-2014 instead of reading on. Guarantees: safe for any number of threads; no call waits for
the relay log. Not done here: deleting (``purge``), remembering an eviction (``evictions``).
"""

import threading

from millrace.errors import Fatal
from millrace.schemas.place import Coordinates


class Holds:
    """The holds of one relay log."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._places: dict[int, Coordinates] = {}
        self._owners: dict[int, str] = {}
        self._evicted: set[int] = set()

    def keep(self, holder: object, at: Coordinates, *, owner: str = "") -> None:
        """Keep the files from ``at`` on for ``holder``, unless it is evicted."""
        with self._lock:
            if id(holder) not in self._evicted:
                self._places[id(holder)] = at
                self._owners[id(holder)] = owner

    def drop(self, holder: object) -> None:
        """Release everything that ``holder`` keeps, and forget its eviction."""
        with self._lock:
            self._places.pop(id(holder), None)
            self._owners.pop(id(holder), None)
            self._evicted.discard(id(holder))

    def oldest(self) -> Coordinates | None:
        """The oldest place that is kept; None if there is none."""
        with self._lock:
            return min(self._places.values(), default=None)

    def places(self) -> list[Coordinates]:
        """Every place that is kept."""
        with self._lock:
            return list(self._places.values())

    def by_owner(self) -> dict[str, Coordinates]:
        found: dict[str, Coordinates] = {}
        with self._lock:
            for holder, at in self._places.items():
                if owner := self._owners[holder]:
                    found[owner] = min(found.get(owner, at), at)
        return found

    def evict(self, owner: str) -> None:
        """Release everything that the task keeps. It keeps nothing more through its present readers."""
        with self._lock:
            for holder in [known for known, name in self._owners.items() if name == owner]:
                self._evicted.add(holder)
                del self._places[holder], self._owners[holder]

    def check(self, holder: object, owner: str) -> None:
        """Raise Fatal MR-2014 if the reader was evicted."""
        if id(holder) in self._evicted:
            raise evicted(owner)


def evicted(task: str, why: str = "") -> Fatal:
    """The error of a task that was evicted."""
    return Fatal("MR-2014", f"task {task} was evicted from the relay log{why}", task=task)
