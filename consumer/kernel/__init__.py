"""The compiled part of apply: record values in, spans, causality keys, lanes and SQL text out.

    walk    one pass over a batch of record values: where each column's value stands, op, seq, flags
    keys    causality keys of each record, as 64-bit hashes with a mode
    order   groups that share a key (union-find), lanes, and levels of records that may change places
    text    values to SQL literals, straight into the text of a statement

All of it is numba: Python source, no build step, no GIL. Everything here takes and returns numpy arrays;
``consumer.rows`` gives them names. Not here: any I/O, any SQL keyword.
"""
