"""Real servers on loopback, for tests, the demonstration and the local stack.

``DatabaseServer`` (either flavour), ``start_set`` (primary and replicas), ``KafkaServer``, ``KafkaCluster``,
``ZooKeeperServer``, ``ZooKeeperEnsemble``: the caller gives each its folder. Each chooses free ports and ends with the
process that started it.
"""

from millrace.deploy.servers.database import DatabaseServer, ServerOptions
from millrace.deploy.servers.database_set import DatabaseSet, start_set
from millrace.deploy.servers.dialect import Account
from millrace.deploy.servers.kafka import KafkaCluster, KafkaServer
from millrace.deploy.servers.kafka_security import KafkaSecurity
from millrace.deploy.servers.zookeeper import Protection, ZooKeeperEnsemble, ZooKeeperServer
