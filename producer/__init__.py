"""Capture: source set → relay log → records → Kafka. Never imports ``consumer``: they meet in the record."""
