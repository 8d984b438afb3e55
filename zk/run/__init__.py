"""Running tasks on a worker: the supervisor, one slot per task, backoff, reports."""
