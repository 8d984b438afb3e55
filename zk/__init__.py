"""Coordination: sessions, the tree, leases, placement and running tasks. Never on the data path."""
