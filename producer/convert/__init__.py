"""Converts the relay log into records: the kernel handles chunks of events, Python handles tables and statements.

    converter       ``Converter.next_batch``: the loop around the kernel
    statements, xa  events that the kernel leaves to Python: statements, file heads, payloads, XA
    event_sources   where events come from
    output, batch   where records go
    tables, column_program, charset_tables, table_filter    table maps to column programs
    arrays, position, query, errors                    one noun each

``converter`` lists the guarantees and limits.
"""
