"""Ranges of a table's rows by a key, for loads and comparisons."""
