"""A ZooKeeper with TLS and logins, the environment of processes that use it, and a raw client that checks its nodes.

The raw client is kazoo alone: it uses no code of the product.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from kazoo.client import KazooClient

from millrace.deploy.servers import Protection, ZooKeeperServer
from millrace.zk.ensemble import Ensemble
from millrace.zk.tree.paths import Tree
from tests.kit.certificates import Authority
from tests.kit.control.control import SESSION_TIMEOUT_S, ensemble_of

WRITER, READER = "millrace", "observer"
PASSWORDS = {WRITER: "writers-secret", READER: "readers-secret"}
CONNECT_S = 60.0


class SecuredZooKeeper:
    """The server, its authority and its users."""

    def __init__(self, folder: Path, *, client_auth: str = "want", enforced: bool = False) -> None:
        folder.mkdir(parents=True)
        self._folder = folder
        self.authority = Authority(folder / "tls")
        self.protection = Protection(
            tls=self.authority.issue("server"),
            client_auth=client_auth,
            users=PASSWORDS,
            requires_login=enforced,
        )
        self.server = ZooKeeperServer(folder / "zookeeper", protection=self.protection)
        for user, password in PASSWORDS.items():
            self.write_password(user, password)

    def new_cluster(self) -> str:
        """A cluster name with its own folder in the ensemble: ``/millrace`` belongs to the first login."""
        name = ensemble_of("").tree.cluster
        with self.raw() as stranger:
            stranger.create(f"/{name}")
        return name

    def plain(self, cluster: str) -> Ensemble:
        """The cluster as a process without TLS and login sees it."""
        hosts = f"{self.server.hosts}/{cluster}"
        return Ensemble(hosts=hosts, tree=Tree(cluster), session_timeout_s=SESSION_TIMEOUT_S)

    def write_password(self, user: str, password: str) -> None:
        """Write the file that ``environment`` refers to."""
        (self._folder / user).write_text(password + "\n")

    def tls(self, cluster: str) -> dict[str, str]:
        """The variables of TLS without a login."""
        return {
            "MILLRACE_ZOOKEEPER": f"{self.server.secure_hosts}/{cluster}",
            "MILLRACE_CLUSTER": cluster,
            "MILLRACE_ZOOKEEPER_TIMEOUT_S": str(SESSION_TIMEOUT_S),
            "MILLRACE_ZOOKEEPER_TLS": "verify-identity",
            "MILLRACE_ZOOKEEPER_TLS_CA": str(self.authority.path),
        }

    def environment(self, cluster: str, *, user: str = WRITER) -> dict[str, str]:
        """The variables of a process that logs in over TLS; ``READER`` may read."""
        return {
            **self.tls(cluster),
            "MILLRACE_ZOOKEEPER_USER": user,
            "MILLRACE_ZOOKEEPER_PASSWORD": f"file:{self._folder / user}",
            "MILLRACE_ZOOKEEPER_WRITERS": f"sasl:{WRITER}",
            "MILLRACE_ZOOKEEPER_READERS": f"sasl:{READER}",
        }

    def ensemble(self, cluster: str, **changes: str) -> Ensemble:
        """As a process with ``environment`` sees it."""
        return Ensemble.from_environment({**self.environment(cluster), **changes})

    @contextmanager
    def raw(self, user: str = "", *, cluster: str = "") -> Iterator[Any]:
        """A raw client on the port for plain text: with this login, else a stranger."""
        login = {"mechanism": "DIGEST-MD5", "username": user, "password": PASSWORDS.get(user)}
        client = KazooClient(
            hosts=f"{self.server.hosts}/{cluster}", sasl_options=login if user else None
        )
        client.start(timeout=CONNECT_S)
        try:
            yield client
        finally:
            client.stop()
            client.close()


def acls(client: Any, path: str) -> Mapping[str, list[str]]:
    """Path → ``scheme:id:permissions`` of every node from ``path`` on, as numbers of ZooKeeper's bits."""
    entries, _ = client.get_acls(path)
    found = {path: sorted(f"{entry.id.scheme}:{entry.id.id}:{entry.perms}" for entry in entries)}
    for name in client.get_children(path):
        found |= acls(client, f"{path}/{name}")
    return found
