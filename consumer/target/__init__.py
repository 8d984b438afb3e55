"""Millrace's own tables on the target, and the sessions of a run there.

progress            the database ``millrace``: fence, low-water mark, applied seqs, schemas, intents
fence               raises the fence of a task
intents             statements that wait for an operator, and the decisions
table_state         the state of a table or database before and after a DDL statement
running_statement   the statement that a task executes, as the server lists it
sessions            the sessions of a run, registered on the target
loads, streams      the tables of loads, and which stream applies them (``load_range``)
"""
