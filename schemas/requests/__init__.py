"""Requests of an operator to a running task, as ZooKeeper keeps them until the task's owner has taken them."""
