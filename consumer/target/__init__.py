"""The target set: the one connection module, what its tables look like, and our progress in it.

connection   PyMySQL and the translation of its errors
inventory    columns, keys and foreign keys of the target's tables, as values
progress     the database ``millrace``: fence, low-water mark, applied seqs, schemas, intents
members      which member of the set is the writable one
"""
