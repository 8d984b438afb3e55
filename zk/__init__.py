"""The coordination: tree layout, membership, election, leases, assignment, status. Never on the data path."""
