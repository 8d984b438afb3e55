"""``millrace unsafe``."""
