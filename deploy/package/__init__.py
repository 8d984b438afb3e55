"""The files that a checkout gives away: the wheel, and a bundle for hosts without network."""
