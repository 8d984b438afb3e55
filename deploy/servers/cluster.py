"""Several servers of one kind that decide together, by number: started and thrown away as one."""

from collections.abc import Mapping
from typing import Generic, TypeVar

from deploy.servers.server import Server

S = TypeVar("S", bound=Server)


class Cluster(Generic[S]):
    """Each of ``servers`` may be killed, paused and started by itself."""

    def __init__(self, servers: Mapping[int, S]) -> None:
        self.servers = servers

    def start(self) -> None:
        """All at the same time; returns when all serve."""
        for server in self.servers.values():
            server.launch()
        for server in self.servers.values():
            server.wait_ready()

    def discard(self) -> None:
        """SIGKILL to all; the folders are removed."""
        for server in self.servers.values():
            server.discard()
