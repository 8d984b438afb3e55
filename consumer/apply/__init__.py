"""Applies the records of a topic: windows between barriers, lanes, target transactions, DDL."""
