"""A folder of ZooKeeper kept at hand: read again only where a watch fired.

``snapshot`` is one frozen mapping; decisions are taken on it and never read again in between. It may be as old as
the time a watch needs to arrive (milliseconds) and heals lost watches by a full read every ``REFRESH_S``.
Raises Retryable while the ensemble is away. One thread calls ``snapshot``; watches come from kazoo's.
"""

import threading
import time
from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType

from zk.session import Node, Session

REFRESH_S = 30.0


class Mirror:
    """The nodes right below one path. ``wake`` is called when it is worth looking again."""

    def __init__(self, session: Session, path: str, wake: Callable[[], None]) -> None:
        self._session = session
        self._path = path
        self._wake = wake
        self._lock = threading.Lock()
        self._nodes: dict[str, Node] = {}
        self._stale_names: set[str] = set()
        self._is_list_stale = True
        self._refreshed_at_s = float("-inf")

    def snapshot(self) -> Mapping[str, Node]:
        """Name → node, sorted by name."""
        if time.monotonic() - self._refreshed_at_s > REFRESH_S:
            self._is_list_stale = True
            with self._lock:
                self._stale_names.update(self._nodes)
        self._read_list()
        self._read_nodes()
        self._refreshed_at_s = time.monotonic()
        return MappingProxyType(dict(sorted(self._nodes.items())))

    def _read_list(self) -> None:
        if not self._is_list_stale:
            return
        # the mark goes before the read: what changes during it marks again
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
            for name in sorted(stale):
                node = self._session.get(
                    f"{self._path}/{name}", watch=partial(self._node_changed, name)
                )
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

    def _node_changed(self, name: str) -> None:
        with self._lock:
            self._stale_names.add(name)
        self._wake()
