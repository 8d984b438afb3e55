"""``millrace doctor``."""
