"""Several servers of one kind that form a quorum, by number. They are started and discarded together."""

from collections.abc import Mapping
from typing import Generic, TypeVar

from millrace.deploy.servers.server import Server

S = TypeVar("S", bound=Server)


class Cluster(Generic[S]):
    """Each of ``servers`` can also be killed, paused and started alone."""

    def __init__(self, servers: Mapping[int, S]) -> None:
        self.servers = servers

    def start(self) -> None:
        """Start all at the same time and wait until all serve."""
        for server in self.servers.values():
            server.launch()
        for server in self.servers.values():
            server.wait_ready()

    def discard(self) -> None:
        for server in self.servers.values():
            server.discard()
