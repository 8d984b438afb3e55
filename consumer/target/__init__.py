"""The target set: connections, the structure of its tables, and the progress that is stored on it.

connection   PyMySQL and the translation of its errors
inventory    columns, keys and foreign keys of the target's tables, as values
folds        how the target's collations weigh characters
progress     the database ``millrace``: fence, low-water mark, applied seqs, schemas, intents
fence        raises the fence of a task
table_state  the state of a table or database before and after a DDL statement
sessions     the sessions of a run, registered on the target
members      finds the writable member of the set
"""
