"""Three Kafka brokers of our own that replicate every partition: what happens when a leader goes.

Guarantees: a write is acknowledged when two brokers have it, so any one may be lost; no unclean election. Three
controllers decide together. Not done here: finding leaders (ask an admin client).
"""

from pathlib import Path

from deploy.servers.cluster import Cluster
from deploy.servers.kafka import KafkaServer, Quorum
from deploy.servers.process import free_port

NODES = (1, 2, 3)


class KafkaCluster(Cluster[KafkaServer]):
    """Brokers by their node id."""

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
        """All of them."""
        return ",".join(server.bootstrap for server in self.servers.values())
