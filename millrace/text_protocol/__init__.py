"""Rows of a server's text protocol, read without a Python object per row.

    walk        finds the rows in packets and the values in a row; for kernels
    arriving    the bytes of a result as they arrive, in a buffer that a kernel reads

A kernel runs until it needs something, and returns why it stopped. ``Arriving`` gives it more bytes. Both halves use
it: copies of tables, and snapshots. Not here: sending the statement, the driver.
"""
