"""A local copy of one folder in ZooKeeper. Only nodes whose watch fired are read again, all at once.

``snapshot`` returns a frozen mapping: a round of decisions uses one snapshot and reads nothing else. The copy lags by
the time a watch needs to arrive (milliseconds). A full read every ``REFRESH_S`` repairs the effect of lost watches. It
sets watches equal to the old ones, so kazoo keeps one for each node.
Raises Retryable while the ensemble is away. Only one thread may call ``snapshot``; kazoo's thread calls the watches.
"""

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from millrace.zk.client.session import Node, Session

REFRESH_S = 300.0  # 20 workers with 200 sets and tasks: 40 reads a second for all of them


class Mirror:
    """The direct children of one path. ``wake`` is called after a change."""

    def __init__(
        self,
        session: Session,
        path: str,
        wake: Callable[[], None],
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._session = session
        self._path = path
        self._wake = wake
        self._clock = clock
        self._lock = threading.Lock()
        self._nodes: dict[str, Node] = {}
        self._stale_names: set[str] = set()
        self._is_list_stale = True
        self._refreshed_at_s = float("-inf")

    def snapshot(self) -> Mapping[str, Node]:
        """Name → node, sorted by name."""
        now_s = self._clock()
        is_refresh = now_s - self._refreshed_at_s > REFRESH_S
        if is_refresh:
            self._is_list_stale = True
            with self._lock:
                self._stale_names.update(self._nodes)
        self._read_list()
        self._read_nodes()
        if is_refresh:
            self._refreshed_at_s = now_s
        return MappingProxyType(dict(sorted(self._nodes.items())))

    def _read_list(self) -> None:
        if not self._is_list_stale:
            return
        # cleared before the read: a change during the read sets it again
        self._is_list_stale = False
        try:
            names = set(self._session.children(self._path, watch=self._list_changed))
        except BaseException:
            self._is_list_stale = True
            raise
        for name in self._nodes.keys() - names:
            del self._nodes[name]
        with self._lock:
            self._stale_names.update(names - self._nodes.keys())

    def _read_nodes(self) -> None:
        with self._lock:
            stale, self._stale_names = self._stale_names, set()
        try:
            names = sorted(stale)
            nodes = self._session.get_each(
                [f"{self._path}/{name}" for name in names],
                watches=[_NodeWatch(self, name) for name in names],
            )
            for name, node in zip(names, nodes, strict=True):
                if node is None:
                    self._nodes.pop(name, None)
                else:
                    self._nodes[name] = node
        except BaseException:
            with self._lock:
                self._stale_names.update(stale)
            raise

    def _list_changed(self) -> None:
        self._is_list_stale = True
        self._wake()

    def node_changed(self, name: str) -> None:
        """Makes the next snapshot read this node again."""
        with self._lock:
            self._stale_names.add(name)
        self._wake()


@dataclass(frozen=True, slots=True)
class _NodeWatch:
    """Two watches of the same node of the same mirror are equal."""

    mirror: Mirror
    name: str

    def __call__(self) -> None:
        self.mirror.node_changed(self.name)
