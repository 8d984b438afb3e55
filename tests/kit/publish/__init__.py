"""Output topics of publish tasks on a real broker."""
