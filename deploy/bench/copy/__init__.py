"""The figures of ``make bench-load``."""
