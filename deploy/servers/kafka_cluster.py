"""Three local Kafka brokers that replicate every partition, for tests that lose a leader.

Guarantees: a write is acknowledged when two brokers have it, so any one broker may be lost. No unclean leader election.
The three controllers form a quorum. Not done here: finding leaders (use an admin client).
"""

from pathlib import Path

from deploy.servers.cluster import Cluster
from deploy.servers.kafka import KafkaServer, Quorum
from deploy.servers.process import free_port

NODES = (1, 2, 3)


class KafkaCluster(Cluster[KafkaServer]):
    """Brokers by node id."""

    def __init__(self, folder: Path) -> None:
        quorum = Quorum({node: free_port() for node in NODES})
        super().__init__(
            {
                node: KafkaServer(folder / f"kafka-{node}", node_id=node, quorum=quorum)
                for node in NODES
            }
        )

    @property
    def bootstrap(self) -> str:
        """The addresses of all brokers."""
        return ",".join(server.bootstrap for server in self.servers.values())
