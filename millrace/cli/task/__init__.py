"""``millrace task``."""
