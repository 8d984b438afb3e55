"""Copies rows of one table from one server to another: exact, fast, and in bounded memory.

    columns     how each column is read and written, by its types on both sides
    table_pair  a table on both sides: the SELECT and the LOAD DATA statement
    form        the texts around values, for the kernel
    outgoing    LOAD DATA or INSERT from the text that the kernel writes
    chunk       one SELECT on the source becomes rows of the target

No Python object is made per row (``consumer.kernel.text_rows``). Not here: commits, chunks, progress.
"""

from millrace.consumer.copy.chunk import Copied, Parts, copy_chunk
from millrace.consumer.copy.table_pair import TablePair
