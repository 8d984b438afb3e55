"""Every value that crosses a process boundary: GTID sets, table structure, records, documents, status. No I/O.

One exception: ``documents/secret.py`` reads a secret in the process that uses it.
"""
