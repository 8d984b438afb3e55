"""``millrace compare``."""
