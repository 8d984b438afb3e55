"""Three ZooKeeper servers of our own that decide together: what happens when a leader, or most of them, goes."""

from pathlib import Path

from deploy.servers.cluster import Cluster
from deploy.servers.process import free_port
from deploy.servers.zookeeper import Voter, Voters, ZooKeeperServer

NUMBERS = (1, 2, 3)


class ZooKeeperEnsemble(Cluster[ZooKeeperServer]):
    """Servers by their number."""

    def __init__(self, folder: Path) -> None:
        voters = {number: Voter(free_port(), free_port()) for number in NUMBERS}
        super().__init__(
            {
                number: ZooKeeperServer(
                    folder / f"zookeeper-{number}", voters=Voters(number, voters)
                )
                for number in NUMBERS
            }
        )

    @property
    def hosts(self) -> str:
        """All of them."""
        return ",".join(server.hosts for server in self.servers.values())
