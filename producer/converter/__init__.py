"""The relay log as records: chunks of events go through the kernel, Python does what happens once a table or a statement.

    converter    ``Converter.next_batch``: the loop around the kernel
    events       what the kernel hands to Python: statements, file heads, payloads, XA
    arrays       the kernel's arrays, their sizes and growth
    tables       table maps to column programs, schema records before first use
    charset_tables, filters, position, query, errors    one noun each
"""
