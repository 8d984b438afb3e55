"""The binlog format: event types, checksums, packets, file heads and source transactions.

The relay log, the receiver and the converter share this package. It does no I/O.
"""
