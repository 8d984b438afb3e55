"""``millrace relay``."""
