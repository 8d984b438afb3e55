"""A look at the rows of one server as they commit, with nothing but that server (``millrace try``).

`trial.py` chooses the member, receives and converts; `binlog.py` is the part of the binlog between the two, in
temporary files; `names.py` takes the names of columns from the server where the binlog has none.

*Invariant:* nothing is written to the server, and nothing outside temporary files on this machine.
"""
