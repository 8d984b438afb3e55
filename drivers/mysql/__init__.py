"""MySQL and MariaDB as clients meet them.

errors              the error numbers of the servers and of the driver, each with its kind
connection          sessions: the only module that uses PyMySQL; its caller has the codes of errors
dump_errors         the errors with which a server ends a dump, by their texts
catalog             columns, keys and foreign keys of tables, as values
collation, folds    which texts a collation calls equal; the server that knows it
grants              what accounts need, hold and miss, and the GRANT that gives it
members             the facts of a set's members, asked at the same time
preflight           settings that hide, truncate or reorder changes
start_file          the binlog file of a server to start from
primary             finds the writable member of a target set
snapshot_position   the GTID set of a consistent snapshot
"""
