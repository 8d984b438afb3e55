"""Ownership: leases with epochs, live workers, the elected leader."""
