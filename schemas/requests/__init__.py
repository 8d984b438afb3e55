"""What an operator asks of a running task, as ZooKeeper keeps it until the task's owner has taken it."""
