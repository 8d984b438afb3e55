"""Three ZooKeeper servers of our own that decide together: what happens when a leader, or most of them, goes."""

from pathlib import Path

from deploy.servers.process import free_port
from deploy.servers.zookeeper import Voter, Voters, ZooKeeperServer

NUMBERS = (1, 2, 3)


class ZooKeeperEnsemble:
    """Servers by their number."""

    def __init__(self, folder: Path) -> None:
        self.voters = {number: Voter(free_port(), free_port()) for number in NUMBERS}
        self.servers = {
            number: ZooKeeperServer(
                folder / f"zookeeper-{number}", voters=Voters(number, self.voters)
            )
            for number in NUMBERS
        }

    @property
    def hosts(self) -> str:
        """All of them."""
        return ",".join(server.hosts for server in self.servers.values())

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
