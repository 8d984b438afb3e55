"""Copies rows that exist on the source to the target, before a stream applies the topic."""
