"""MySQL and MariaDB as clients meet them.

errors              the error numbers of the servers and of the driver, each with its kind
connection          PyMySQL and the codes of its errors, for both sides of apply
catalog             columns, keys and foreign keys of tables, as values
folds, collation    how collations weigh characters
members             chooses the member of a source set that a load reads
primary             finds the writable member of a target set
snapshot_position   the GTID set of a consistent snapshot
"""
