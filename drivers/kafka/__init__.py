"""Kafka as clients meet it.

reader   reads a topic's partition
"""
