"""Every value that crosses a process boundary, pure: GTID sets, table structure, record formats, documents.

Only ``schemas.registry`` does I/O.
"""
