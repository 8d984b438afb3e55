"""Which ensemble and which cluster: from the environment, once, at the border.

``MILLRACE_ZOOKEEPER`` host:port[,host:port…]; ``MILLRACE_CLUSTER`` (default ``default``);
``MILLRACE_ZOOKEEPER_TIMEOUT_S`` the session timeout (default 10): how long after a worker's death its tasks move.
"""

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from millrace.errors import Fatal
from zk.session import CONNECT_TIMEOUT_S, SESSION_TIMEOUT_S, Session
from zk.tree import Tree, lay


@dataclass(frozen=True, slots=True, kw_only=True)
class Ensemble:
    """Where the coordination is."""

    hosts: str
    tree: Tree
    session_timeout_s: float = SESSION_TIMEOUT_S

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] = os.environ) -> "Ensemble":
        """Fatal MR-4205 when no ensemble is named."""
        hosts = environment.get("MILLRACE_ZOOKEEPER", "").strip()
        if not hosts:
            raise Fatal("MR-4205", "MILLRACE_ZOOKEEPER is not set")
        if not _are_hosts(hosts):
            raise Fatal("MR-4205", f"MILLRACE_ZOOKEEPER is {hosts[:80]!r}, no list of servers")
        timeout = environment.get("MILLRACE_ZOOKEEPER_TIMEOUT_S", "")
        try:
            timeout_s = float(timeout or SESSION_TIMEOUT_S)
        except ValueError:
            timeout_s = 0.0
        if not 0.5 <= timeout_s <= 600:
            raise Fatal(
                "MR-4205",
                f"MILLRACE_ZOOKEEPER_TIMEOUT_S is {timeout[:40]!r}, wanted 0.5 to 600 seconds",
                fix="Set it to a number of seconds, or unset it for 10.",
            )
        tree = Tree(environment.get("MILLRACE_CLUSTER", "") or "default")
        return cls(hosts=hosts, tree=tree, session_timeout_s=timeout_s)

    def open(self, *, connect_timeout_s: float = CONNECT_TIMEOUT_S) -> Session:
        """A session; Retryable MR-4001 when nobody answers."""
        return Session.open(
            self.hosts, timeout_s=self.session_timeout_s, connect_timeout_s=connect_timeout_s
        )

    @contextmanager
    def session(self) -> Iterator[Session]:
        """A session for one command, with the tree laid."""
        session = self.open()
        try:
            lay(session, self.tree)
            yield session
        finally:
            session.close()


_SERVER = re.compile(r"(?:[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\])(?::(?P<port>[0-9]{1,5}))?")


def _are_hosts(hosts: str) -> bool:
    """host[:port][,host[:port]…][/path], as the driver takes it: it raises ValueError on anything else."""
    servers = [_SERVER.fullmatch(server.strip()) for server in hosts.partition("/")[0].split(",")]
    return all(server and 0 < int(server["port"] or 2181) < 65536 for server in servers)
