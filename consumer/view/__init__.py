"""Rows of records as a view gives them: which ones are in it."""
