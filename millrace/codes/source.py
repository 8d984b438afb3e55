"""1xxx: reading a source set."""

from millrace.codes.code import Branch, Code

CODES: tuple[Code, ...] = (
    Code(
        "MR-1001",
        "a source server can't be reached, or can't work now",
        "No server answers at the address, the server refuses new connections, or it has no memory, disk space or lock"
        " for a statement at the moment. The message has the server's own text.",
        "Check that the server runs and that host and port in `millrace set show SET` are right. The task retries by"
        " itself.",
        Branch.RETRIES,
    ),
    Code(
        "MR-1002",
        "a source server refuses the account",
        "The user name or password is wrong, or the account may not connect from this host.",
        "Correct `user` and `password` in the set document (`millrace set create -f FILE --replace`), then `millrace task"
        " resume TASK`. A task that was running retries by itself for some minutes first.",
        Branch.OPERATOR,
    ),
    Code(
        "MR-1003",
        "the certificate of a source server can't be verified",
        "The certificate is not signed by the CA of the set document, has expired, or was issued for another host name;"
        " or the CA file can't be read on this host. The message names the reason.",
        "Set `tls_ca` to the CA that signed the certificate. If only the host name differs, set `tls: verify-ca`. For a"
        " self-signed certificate without a CA file, set `tls: require-unverified`.",
        Branch.OPERATOR,
    ),
    Code(
        "MR-1004",
        "a source server offers no TLS",
        "The set document requires TLS, but the server was started without it.",
        "Configure a certificate on the server, or set `tls: disabled` in the set document.",
        Branch.OPERATOR,
    ),
    Code(
        "MR-1005",
        "the account has too few privileges on a source server",
        "The server refused a statement or the binlog dump to the account.",
        "GRANT REPLICATION SLAVE, REPLICATION CLIENT (MariaDB also: SLAVE MONITOR) ON *.* TO the account of the set"
        " document, on the primary.",
        Branch.OPERATOR,
    ),
    Code(
        "MR-1006",
        "the connection to a source server was lost",
        "The server or a network device ended the connection.",
        "Nothing to do: the stream resumes where the relay log ends.",
        Branch.RETRIES,
    ),
    Code(
        "MR-1007",
        "a source server answers a query with an error",
        "The server does not know a statement that this version of Millrace uses.",
        "Check that the server is MySQL 8.0 or later, or MariaDB 10.5 or later. If it is, report the error with the"
        " server's version.",
        Branch.OPERATOR,
    ),
    Code(
        "MR-1008",
        "the account's authentication method can't be used",
        "The server asks for the password in a form that an impostor could read: as plain text, or encrypted with a key"
        " that the server sends. Nothing was sent. Or the method needs a package that is not installed.",
        "Set `tls` in the set document to `verify-identity` or `verify-ca`. With `require-unverified` only the methods"
        " caching_sha2_password, sha256_password, mysql_native_password and ed25519 work. MariaDB's ed25519 needs"
        " `pip install pynacl` beside Millrace.",
        Branch.OPERATOR,
    ),
    Code(
        "MR-1010",
        "the source writes no binlog",
        "log_bin is OFF on the server, so there are no changes to read.",
        "Start the server with `log_bin=mysql-bin` in its configuration.",
        Branch.OPERATOR,
    ),
    Code(
        "MR-1011",
        "the replica does not log the changes it receives",
        "log_replica_updates (log_slave_updates) is OFF, so the primary's changes are missing in the replica's binlog.",
        "Start the replica with `log_replica_updates=ON` (MariaDB: `log_slave_updates=ON`) in its configuration.",
        Branch.OPERATOR,
    ),
    Code(
        "MR-1012",
        "the binlog is not in row format",
        "binlog_format is STATEMENT or MIXED, so the binlog does not contain the changed rows.",
        "SET GLOBAL binlog_format = 'ROW', and set it in the server's configuration. Open sessions keep the old value"
        " until they reconnect.",
        Branch.OPERATOR,
    ),
    Code(
        "MR-1013",
        "row images are not full",
        "binlog_row_image is MINIMAL or NOBLOB, so columns are missing in the logged rows.",
        "SET GLOBAL binlog_row_image = 'FULL', and set it in the server's configuration. Open sessions keep the old value"
        " until they reconnect.",
        Branch.OPERATOR,
    ),
    Code(
        "MR-1014",
        "table maps have no full metadata",
        "binlog_row_metadata is not FULL, so the binlog does not contain the names of the columns.",
        "SET GLOBAL binlog_row_metadata = 'FULL', and set it in the server's configuration.",
        Branch.OPERATOR,
    ),
    Code(
        "MR-1015",
        "JSON values are logged in parts",
        "binlog_row_value_options is PARTIAL_JSON, so after images contain only the changed parts of JSON values.",
        "SET GLOBAL binlog_row_value_options = '', and set it in the server's configuration.",
        Branch.OPERATOR,
    ),
    Code(
        "MR-1016",
        "the source assigns no GTIDs",
        "gtid_mode is not ON, so transactions have no identifiers that all members share.",
        "SET GLOBAL enforce_gtid_consistency = ON, then set gtid_mode to OFF_PERMISSIVE, ON_PERMISSIVE and ON, one step"
        " after the other.",
        Branch.OPERATOR,
    ),
    Code(
        "MR-1017",
        "GTID sequence numbers can go backwards",
        "gtid_strict_mode is OFF, so a domain can contain the same sequence number twice.",
        "SET GLOBAL gtid_strict_mode = ON, and set it in the server's configuration.",
        Branch.OPERATOR,
    ),
    Code(
        "MR-1018",
        "a replica filters the changes it replicates",
        "A replication filter (or binlog_do_db, binlog_ignore_db) keeps changes out of this member's binlog.",
        "Remove the filter that the message names, or remove the member from the set document.",
        Branch.OPERATOR,
    ),
    Code(
        "MR-1019",
        "binlog events have no checksum",
        "binlog_checksum is not CRC32, so damage in transit could not be detected.",
        "SET GLOBAL binlog_checksum = 'CRC32', and set it in the server's configuration.",
        Branch.OPERATOR,
    ),
    Code(
        "MR-1020",
        "a member of the set is another kind of server",
        "The set contains both MySQL and MariaDB servers, or a server that is neither.",
        "Name only members of one replication set in the set document.",
        Branch.OPERATOR,
    ),
    Code(
        "MR-1022",
        "a replica commits in another order than its primary",
        "The replica applies with several workers and replica_preserve_commit_order (slave_preserve_commit_order) is OFF,"
        " so the order in its binlog differs from the primary's and from other members'.",
        "STOP REPLICA SQL_THREAD; SET GLOBAL replica_preserve_commit_order = ON; START REPLICA SQL_THREAD; and set it in"
        " the replica's configuration.",
        Branch.OPERATOR,
    ),
    Code(
        "MR-1023",
        "the source server is too old",
        "Its table maps can't contain column names: binlog_row_metadata needs MySQL 8.0 or MariaDB 10.5.",
        "Upgrade the server, or remove the member from the set document.",
        Branch.OPERATOR,
    ),
    Code(
        "MR-1030",
        "no member of the set can be read",
        "Every member was checked and none is usable. The message lists the reason for each.",
        "Fix the first reason that the message lists. The task checks the members again by itself.",
        Branch.RETRIES,
    ),
    Code(
        "MR-1031",
        "the source has purged transactions that the task needs",
        "No usable member still has the binlog with the first transaction that the task needs. The binlog was purged, or"
        " the server was restored from a backup without it.",
        "Restore the binlogs on a member. If no member has them, `millrace unsafe reset-position TASK --gtid GTID-SET --reason MR-1031` continues"
        " later: the topic will never have the purged changes, and apply tasks stop there until you have repaired their"
        " targets. Keep binlogs for longer.",
        Branch.OPERATOR,
    ),
    Code(
        "MR-1032",
        "a member has transactions that its primary does not have",
        "A client wrote directly to the replica, or a former primary came back after a failover (errant transactions).",
        "Compare and rebuild the member, or inject empty transactions with these GTIDs on the primary.",
        Branch.OPERATOR,
    ),
    Code(
        "MR-1033",
        "published transactions are missing on the primary",
        "The primary lost its last transactions in a crash, was promoted or restored without them, or its binlog was"
        " reset. Other transactions may now have the same GTIDs.",
        "Find the member that has them, and make it the primary. If it is lost and the GTIDs are not reused, inject empty"
        " transactions with these GTIDs on the primary (MariaDB: with `gtid_domain_id`, `server_id` and `gtid_seq_no` of the"
        " session), resume the task, and repair the targets, which have the lost changes (`millrace compare TASK`). If they are"
        " reused, capture to a new topic from the primary's GTID set, and load the targets again.",
        Branch.OPERATOR,
    ),
    Code(
        "MR-1034",
        "a task needs an earlier part of the set's binlog than the stream reads",
        "The task joined other tasks of the same set that are further ahead. All share one stream, which must begin"
        " again at the position of the new task.",
        "Nothing to do: the set's tasks restart together at the earliest position that one of them needs.",
        Branch.RETRIES,
    ),
    Code(
        "MR-1035",
        "an operator drained the member",
        "`millrace replica drain` excluded the member from reading, usually for maintenance.",
        "When the maintenance has ended: `millrace replica undrain SET HOST:PORT`.",
        Branch.RETRIES,
    ),
    Code(
        "MR-1036",
        "a member does not have all received transactions yet",
        "The stream must leave its member, and this one does not have the end of the relay log. Reading from it would go back.",
        "Nothing to do: the task waits until a member has caught up. If the primary failed over, check that the new primary"
        " has the transactions that the message names.",
        Branch.RETRIES,
    ),
    Code(
        "MR-1037",
        "a member logged other changes under a GTID that is already received",
        "The end of the relay log was compared with the member by canonical checksum, and a source transaction differs."
        " Usually a former primary lost its last transactions in a crash and reused their GTIDs, or a client wrote"
        " to a replica.",
        "Compare the members' rows of the transaction that the message names, and rebuild the wrong member. If the member that"
        " was read before is the wrong one, its transaction may be published: repair the targets.",
        Branch.RETRIES,
    ),
    Code(
        "MR-1038",
        "no member has the binlog file at which the relay should start",
        "`relay.start` of the set document, or `--from` of `millrace relay start`, names a file that was purged or never existed.",
        "Name a file that SHOW BINARY LOGS lists on a member, a GTID set, or first. Then run `millrace relay resume SET`.",
        Branch.OPERATOR,
    ),
    Code(
        "MR-1040",
        "the source no longer has the binlog file",
        "The file was purged just before it was read, or the binlog was reset.",
        "Nothing to do: the task finds its position again. If the error repeats, keep binlogs for longer.",
        Branch.RETRIES,
    ),
    Code(
        "MR-1041",
        "a binlog file of the source is shorter than what was read from it",
        "The server lost the end of its binlog in a crash, or the file is another one with the same name.",
        "Nothing to do: the relay log starts a new sub-directory. Look for the cause in the server's error log.",
        Branch.RETRIES,
    ),
    Code(
        "MR-1042",
        "another reader uses Millrace's server id",
        "A second worker or another tool reads the binlog with the same server id. The server keeps only the newer"
        " connection.",
        "Stop the other reader, or give it another server id. The worker checks its lease before it reads again.",
        Branch.FENCED,
    ),
    Code(
        "MR-1043",
        "a binlog file of the source is damaged",
        "The server could not read its own file, after a crash, a full disk or a hardware fault.",
        "Check the file with `mysqlbinlog --verify-binlog-checksum`. Read from another member. If no member has the file"
        " whole, `millrace unsafe reset-position TASK --gtid GTID-SET --reason MR-1043` continues after it: the topic will never have the changes"
        " in between, and apply tasks stop there until you have repaired their targets.",
        Branch.OPERATOR,
    ),
    Code(
        "MR-1044",
        "a binlog event is larger than the source may send",
        "The server's max_allowed_packet is smaller than an event in its binlog.",
        "SET GLOBAL max_allowed_packet = 1073741824 on the member that the message names, and set it in its configuration."
        " If it has that value already, the file is damaged: check it with `mysqlbinlog --verify-binlog-checksum`.",
        Branch.EITHER,
    ),
    Code(
        "MR-1045",
        "the source refuses to send its binlog",
        "The server answered the dump request with an error that Millrace does not know. The message repeats it.",
        "Read the server's message and its error log. The task retries by itself.",
        Branch.RETRIES,
    ),
    Code(
        "MR-1046",
        "the source stopped sending",
        "No byte arrived for three heartbeat periods, although an idle server sends heartbeats.",
        "Nothing to do: the task reconnects. If the error repeats, check the network to the source.",
        Branch.RETRIES,
    ),
    Code(
        "MR-1047",
        "the heartbeat row of a set is not written",
        "The set's document has a `heartbeat`, and the worker can't write its row: the account has no rights in that database,"
        " the database does not exist, the primary is read_only, or not exactly one member is the primary. A warning in the"
        " log and the status: tasks continue.",
        "GRANT CREATE, SELECT, INSERT, UPDATE ON the database of `heartbeat` to the account of the set document, on the"
        " primary, or remove `heartbeat` from the document. The worker tries again by itself.",
        Branch.RETRIES,
    ),
)
