"""The compiled part of apply: turns record values into cells, causality keys, lanes and SQL text.

    walk          one pass over a batch of record values: the position of each column's value, op, seq, flags
    hashes        causality keys of each record, as 64-bit hashes with a mode
    groups        groups that share a key (union-find), lanes, and levels of records that may be reordered
    merge         net changes of rows that several records change
    digits        writes numbers as decimal digits
    literals      writes values as SQL literals directly into the text of a statement
    load_data     writes rows as the text that LOAD DATA reads
    text_rows     turns rows of a server's text protocol into text for a statement
    conditions    evaluates the condition of a view
    changes       what a view makes of the rows of a table
    masks         writes the images of changes again, with masked values
    sha256        HMACs of many messages at once
    json_numbers  finds JSON texts with numbers that a server reading them would change

The code is Python compiled by numba: no build step, no GIL. All functions take and return numpy arrays;
``consumer.records.rows`` gives them names. Not here: any I/O, any SQL keyword.
"""
