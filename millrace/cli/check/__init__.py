"""``millrace check``."""
