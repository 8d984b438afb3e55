"""Who owns what: leases with epochs, live workers, the elected leader."""
