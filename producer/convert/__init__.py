"""The relay log as records: chunks of events go through the kernel, Python does the rest, once a table or a statement.

    converter       ``Converter.next_batch``: the loop around the kernel
    statements, xa  what the kernel hands to Python: statements, file heads, payloads, XA
    event_sources   where events come from
    output, batch   where records go
    tables, column_program, charset_tables, table_filter    table maps to column programs
    arrays, position, query, errors                    one noun each

Guarantees and limits stand in ``converter``.
"""
