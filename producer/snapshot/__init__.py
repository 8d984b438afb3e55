"""Snapshots: the rows that tables have already, interleaved with their changes and exact.

    structure        the structure of a table from the server's catalogue, equal to that of its table map
    select_list      the SELECT list of a table, and how its values are packed into row images
    images           the row images of a chunk, from the packets of its SELECT
    encoder          the rows of a chunk as finished records without their ``seq``
    chunk_read       one consistent read of a chunk on a member, between two GTID sets
    reader           the thread that reads, one chunk ahead
    insertion_plan   which chunk is inserted where: the state machine in the converter's thread

*Invariant:* a row of a chunk is inserted only where the stream has everything that the read saw, and only if the stream
did not change its key since a point that the read saw wholly (``insertion_plan``).
"""
