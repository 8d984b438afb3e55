"""Capture: source set → relay log → records → Kafka. It never imports ``consumer``: both share only the record."""
