"""1xxx: reading a source set."""

from millrace.codes.code import Code

CODES: tuple[Code, ...] = (
    Code(
        "MR-1001",
        "a source server can't be reached",
        "Nothing answers at the address, or the server turns new connections away.",
        "Check that the server runs and that host and port in `millrace set show NAME` are right; it is tried again.",
    ),
    Code(
        "MR-1002",
        "a source server refuses the account",
        "User or password are wrong, or the account may not connect from this host.",
        "Correct user and password reference in the set document (`millrace set create -f FILE --replace`), then resume.",
    ),
    Code(
        "MR-1003",
        "a source server's certificate is not verified",
        "It is not signed by the CA that the set document names, has ended, or is made out for another name, or the CA's"
        " file can't be read here.",
        "Give the right `tls_ca`, or mend the certificate; `tls: verify-ca` leaves the name unchecked.",
    ),
    Code(
        "MR-1004",
        "a source server offers no TLS",
        "The set document asks for TLS and the server was started without.",
        "Set the server up with a certificate, or write `tls: disabled` in the set document.",
    ),
    Code(
        "MR-1005",
        "the account lacks a privilege",
        "A statement or the dump was refused to the account.",
        "GRANT REPLICATION SLAVE, REPLICATION CLIENT (MariaDB also: SLAVE MONITOR) ON *.* TO the account of the set"
        " document, on the primary.",
    ),
    Code(
        "MR-1006",
        "the connection to a source server was lost",
        "The server, or something on the way to it, ended the connection.",
        "Nothing to do: the stream is taken up again where the relay log ends.",
    ),
    Code(
        "MR-1007",
        "a source server answers a question with an error",
        "A statement that this version asks is not known to the server.",
        "Check that the server is MySQL 8.0 or later or MariaDB 10.6 or later; report it with its version.",
    ),
    Code(
        "MR-1008",
        "the account's way of authentication needs TLS",
        "The password can't be sent in the clear, and the other way (RSA) is not available here.",
        "Set `tls:` in the set document to another mode than `disabled`, or install the package `cryptography`.",
    ),
    Code(
        "MR-1010",
        "the source writes no binlog",
        "log_bin is OFF on the server, so it has nothing to give.",
        "Start the server with `log_bin=mysql-bin` in its configuration.",
    ),
    Code(
        "MR-1011",
        "the replica does not log the changes it receives",
        "log_replica_updates (log_slave_updates) is OFF, so its own binlog lacks the primary's changes.",
        "Start the replica with `log_replica_updates=ON` (MariaDB: `log_slave_updates=ON`) in its configuration.",
    ),
    Code(
        "MR-1012",
        "the binlog is not in row format",
        "binlog_format is STATEMENT or MIXED, so changes are not in the binlog as rows.",
        "SET GLOBAL binlog_format = 'ROW' (and in its configuration); sessions that are open keep the old one.",
    ),
    Code(
        "MR-1013",
        "row images are not full",
        "binlog_row_image is MINIMAL or NOBLOB, so rows lack columns.",
        "SET GLOBAL binlog_row_image = 'FULL' (and in its configuration); sessions that are open keep the old one.",
    ),
    Code(
        "MR-1014",
        "table maps without full metadata",
        "binlog_row_metadata is not FULL, so events don't say what the columns are called.",
        "SET GLOBAL binlog_row_metadata = 'FULL' (and in its configuration).",
    ),
    Code(
        "MR-1015",
        "JSON values are logged in parts",
        "binlog_row_value_options is PARTIAL_JSON, so after images are not whole.",
        "SET GLOBAL binlog_row_value_options = '' (and in its configuration).",
    ),
    Code(
        "MR-1016",
        "the source gives no GTIDs",
        "gtid_mode is not ON, so transactions have no names that other members know.",
        "SET GLOBAL gtid_mode through OFF_PERMISSIVE and ON_PERMISSIVE to ON, enforce_gtid_consistency = ON first.",
    ),
    Code(
        "MR-1017",
        "GTID sequences may go backwards",
        "gtid_strict_mode is OFF, so one domain can hold a sequence twice.",
        "SET GLOBAL gtid_strict_mode = ON (and in its configuration).",
    ),
    Code(
        "MR-1018",
        "the replica filters what it replicates",
        "A replication filter (or binlog_do_db, binlog_ignore_db) hides changes from this member's binlog.",
        "Remove the filter named, or leave the member out of the set document.",
    ),
    Code(
        "MR-1019",
        "binlog events carry no checksum",
        "binlog_checksum is not CRC32, so damage on the way could not be seen.",
        "SET GLOBAL binlog_checksum = 'CRC32' (and in its configuration).",
    ),
    Code(
        "MR-1020",
        "a server of another kind",
        "The set mixes MySQL and MariaDB, or the server is neither.",
        "Name only members of one replication set in the set document.",
    ),
    Code(
        "MR-1021",
        "the binlog files are encrypted in MariaDB's way",
        "encrypt_binlog is ON: positions in the file are not those of the stream, so it can't be kept byte by byte.",
        "SET encrypt_binlog=OFF in the configuration of one replica and name that one, or encrypt its disk instead.",
    ),
    Code(
        "MR-1030",
        "no member of the set can be read",
        "Every member was looked at and none is admissible; the reasons are listed.",
        "Mend the first reason that is listed; the members are asked again at the next try.",
    ),
    Code(
        "MR-1031",
        "transactions that are needed were purged",
        "No admissible member has the binlog that holds the first transaction wanted: purged, or a backup came without it.",
        "Start the task at a later GTID set after reloading the target, or restore the binlogs; keep them for longer.",
    ),
    Code(
        "MR-1032",
        "a member has transactions that the primary lacks",
        "Somebody wrote to the replica directly, or a failed-over primary came back (errant transactions).",
        "Compare and rebuild the member, or inject empty transactions of these GTIDs on the primary.",
    ),
    Code(
        "MR-1033",
        "the primary lacks transactions that were published",
        "It lost its tail in a crash, was promoted or restored without them, or RESET its binlog; others may have their numbers.",
        "Find out which member has them; after repair of the targets start a new topic at the primary's GTID set.",
    ),
    Code(
        "MR-1034",
        "a task needs the set's binlog from an earlier place than the others",
        "It joined tasks of the same set that were further; the one upstream of the set begins again at its place.",
        "Nothing needs doing: the set's tasks start again together, from the earliest place that one of them needs.",
    ),
    Code(
        "MR-1040",
        "the source no longer has the binlog file",
        "The file was purged between asking and reading, or the binlog was reset.",
        "Nothing to do at first: the position is looked up again; if it repeats, keep binlogs for longer.",
    ),
    Code(
        "MR-1041",
        "the source's binlog is shorter than what was read of it",
        "The server lost the end of its binlog in a crash, or the file is another one of the same name.",
        "Nothing to do at first: the relay log begins a new sub-directory; look into the server's error log.",
    ),
    Code(
        "MR-1042",
        "another reader with our server id took our place",
        "A second worker, or another tool, reads with the same id; the server keeps only the newer.",
        "End the other reader, or give it another server id; the lease is checked before reading on.",
    ),
    Code(
        "MR-1043",
        "the source's binlog file is damaged",
        "The server could not read its own file: cut by a crash, a full disk, or hardware.",
        "Check the file with `mysqlbinlog --verify-binlog-checksum`; read from another member or a later GTID set.",
    ),
    Code(
        "MR-1044",
        "an event is larger than the source may send",
        "max_allowed_packet of the server is smaller than an event in its binlog.",
        "SET GLOBAL max_allowed_packet = 1073741824 on the member that is named.",
    ),
    Code(
        "MR-1045",
        "the source refuses to send its binlog",
        "The server answered the dump request with an error that is not known here; its text is given.",
        "Read the server's text and its error log; it is tried again.",
    ),
    Code(
        "MR-1046",
        "the source fell silent",
        "Not a byte came for three heartbeat periods, although an idle server sends heartbeats.",
        "Nothing to do: the connection is made anew; if it repeats, look at the network between.",
    ),
)
