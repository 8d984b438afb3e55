"""``millrace try``: rows of a server on the terminal."""
