"""Which changes depend on each other, and which are already applied. Pure."""
