"""Three local ZooKeeper servers in an ensemble, for tests that lose the leader or the majority."""

from pathlib import Path

from deploy.servers.cluster import Cluster
from deploy.servers.process import free_port
from deploy.servers.zookeeper import Voter, Voters, ZooKeeperServer

NUMBERS = (1, 2, 3)


class ZooKeeperEnsemble(Cluster[ZooKeeperServer]):
    """Servers by number."""

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
        """The addresses of all servers."""
        return ",".join(server.hosts for server in self.servers.values())
