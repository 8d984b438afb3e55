"""The figures of ``make bench-compare``."""
