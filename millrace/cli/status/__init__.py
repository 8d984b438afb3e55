"""``millrace status`` and ``millrace top``."""
