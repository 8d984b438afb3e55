"""The nodes of a cluster in ZooKeeper: paths, contents, and the store of sets and tasks."""
