"""The benchmark of ``make bench-capture``."""
