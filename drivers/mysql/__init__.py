"""MySQL and MariaDB as clients meet them.

errors              the error numbers of the servers and of the driver, each with its kind
connection          PyMySQL and the codes of its errors, for both sides of apply
catalog             columns, keys and foreign keys of tables, as values
folds, collation    how collations weigh characters
session             what questions need of a connection of either half
grants              what accounts need, hold and miss, and the GRANT that gives it
members             the facts of a set's members, asked at the same time
preflight           settings that hide, truncate or reorder changes
start_file          the binlog file of a server to start from
primary             finds the writable member of a target set
snapshot_position   the GTID set of a consistent snapshot
"""
