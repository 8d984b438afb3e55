"""The relay log as records: chunks of events go through the kernel, Python does the rest, once a table or a statement.

    converter       ``Converter.next_batch``: the loop around the kernel
    events, xa      what the kernel hands to Python: statements, file heads, payloads, XA
    feeds           where events come from
    output, batch   where records go
    tables, column_program, charset_tables, filters    table maps to column programs
    arrays, position, query, errors                    one noun each

Guarantees and limits stand in ``converter``.
"""
