"""The ZooKeeper ensemble and the cluster in it, as the environment names them.

``MILLRACE_ZOOKEEPER``            host:port[,host:port…]
``MILLRACE_CLUSTER``              the cluster's name, ``default`` if unset
``MILLRACE_ZOOKEEPER_TIMEOUT_S``  the session timeout, 10 if unset: a dead worker's tasks move after this time

TLS, the login and the ACL of the nodes: ``zk/client/access.py``.
"""

import os
import re
import socket
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, field

from millrace.errors import Fatal, Retryable
from millrace.home_folder import STACK
from millrace.zk.client.access import Access
from millrace.zk.client.session import CONNECT_TIMEOUT_S, SESSION_TIMEOUT_S, Session
from millrace.zk.tree.paths import Tree, create_tree


@dataclass(frozen=True, slots=True, kw_only=True)
class Ensemble:
    """An ensemble, and the cluster that this process belongs to."""

    hosts: str
    tree: Tree
    session_timeout_s: float = SESSION_TIMEOUT_S
    access: Access = field(default_factory=Access)

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] = os.environ) -> "Ensemble":
        """Fatal MR-4205 or MR-7027 for a missing or malformed variable, MR-8010 if the named stack does not run."""
        hosts = environment.get("MILLRACE_ZOOKEEPER", "").strip()
        if not hosts:
            if stack := environment.get(STACK):
                raise Fatal(
                    "MR-8010",
                    f"{STACK} names the local stack {stack!r}, which is not running here",
                    fix=f"Start it with `millrace up --name {stack}`, set {STACK} to the name of a stack that runs, or"
                    " unset it for the stack `local`.",
                )
            raise Fatal("MR-4205", "MILLRACE_ZOOKEEPER is not set")
        if not _are_hosts(hosts):
            raise Fatal(
                "MR-4205", f"MILLRACE_ZOOKEEPER is {hosts[:80]!r}, which is not a list of servers"
            )
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
        access = Access.from_environment(environment)
        return cls(hosts=hosts, tree=tree, session_timeout_s=timeout_s, access=access)

    @property
    def servers(self) -> tuple[str, ...]:
        """Each server of ``hosts`` alone, in the same form."""
        hosts, slash, path = self.hosts.partition("/")
        return tuple(f"{server.strip()}{slash}{path}" for server in hosts.split(","))

    def open(self, *, connect_timeout_s: float = CONNECT_TIMEOUT_S) -> Session:
        """A session, as ``Session.open``. Retryable MR-4001 at once when no host name resolves."""
        _check_names(self.hosts)
        return Session.open(
            self.hosts,
            timeout_s=self.session_timeout_s,
            connect_timeout_s=connect_timeout_s,
            access=self.access,
        )

    @contextmanager
    def session(self) -> Iterator[Session]:
        """A session for one command. The cluster's nodes exist."""
        with closing(self.open()) as session:
            create_tree(session, self.tree)
            yield session


_LABEL = r"[A-Za-z0-9_](?:[A-Za-z0-9_-]{0,62})"  # one part of a host name: 1 to 63 characters
_SERVER = re.compile(
    rf"(?P<host>{_LABEL}(?:\.{_LABEL})*\.?|\[[0-9A-Fa-f:.]+\])(?::(?P<port>[0-9]{{1,5}}))?"
)


def _are_hosts(hosts: str) -> bool:
    """Whether it is host[:port][,host[:port]…][/path]: kazoo raises ValueError on anything else."""
    return all(server and 0 < int(server["port"] or 2181) < 65536 for server in _servers(hosts))


def _servers(hosts: str) -> list[re.Match[str] | None]:
    return [_SERVER.fullmatch(server.strip()) for server in hosts.partition("/")[0].split(",")]


def _check_names(hosts: str) -> None:
    """Retryable MR-4001 when no host name resolves: kazoo would wait for the whole timeout."""
    errors = []
    for server in _servers(hosts):
        name = server["host"].strip("[]") if server else ""
        try:
            socket.getaddrinfo(name, None)
        except OSError as error:
            errors.append(f"{name}: {error.strerror}")
        else:
            return
    raise Retryable("MR-4001", f"no host name in MILLRACE_ZOOKEEPER resolves: {'; '.join(errors)}")
