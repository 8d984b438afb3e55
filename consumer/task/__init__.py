"""One apply task in the driver: its runner, its start, its report."""
