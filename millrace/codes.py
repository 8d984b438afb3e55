"""The one catalogue of error codes: what an operator may see, why, and what mends it.

A code is stable once released: its meaning never changes and its number is never given again. The branch (retry,
fenced, fatal) is not here: the class that is raised says it, because the same condition can be either.

Sections: 1xxx source, 2xxx relay, 3xxx Kafka, 4xxx coordination and documents, 5xxx apply and target,
6xxx record schema and DDL, 7xxx security, 8xxx installation and local servers, 9xxx internal.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType


@dataclass(frozen=True, slots=True)
class Code:
    """One condition. ``fix`` is a sentence that tells the operator what to do."""

    code: str
    title: str
    cause: str
    fix: str


# ---- 1xxx source --------------------------------------------------------------------------------
_SOURCE: tuple[Code, ...] = (
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
        "It is not signed by the CA that the set document names, has ended, or is made out for another name.",
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
        "GRANT REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO the account named, on the primary.",
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
        "No admissible member still has the binlog that holds the first transaction wanted.",
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
        "It lost its tail in a crash, was restored from a backup, or RESET its binlog.",
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

# ---- 2xxx relay ---------------------------------------------------------------------------------
_RELAY: tuple[Code, ...] = (
    Code(
        "MR-2001",
        "the relay directory is in use",
        "Another process holds the lock of the relay directory.",
        "Nothing to do when a worker has just been replaced; else end the process that holds it (`fuser DIR/lock`).",
    ),
    Code(
        "MR-2002",
        "the relay log can't be written",
        "The disk is full, read-only or failing.",
        "Free space or mend the disk; the stream goes on by itself where the relay log ends.",
    ),
    Code(
        "MR-2003",
        "the relay log could not be made durable",
        "fsync failed, so what was written since the last one is not trusted any more.",
        "Check the disk; what was in doubt is cut off and fetched again by itself.",
    ),
    Code(
        "MR-2004",
        "a relay file is damaged",
        "Bytes in the middle of a relay file are not what was written: checksum, length or position disagree.",
        "Check the disk, then remove the relay directory: it is fetched again from the source.",
    ),
    Code(
        "MR-2005",
        "the stream of the source is not in order",
        "A packet is missing, out of sequence or of an impossible length.",
        "Nothing to do: the connection is made anew; if it repeats, look at proxies on the way.",
    ),
    Code(
        "MR-2006",
        "an event came with a wrong checksum",
        "It was damaged on the way or in the source's file.",
        "Nothing to do at first: it is fetched again; if it repeats, `mysqlbinlog --verify-binlog-checksum` on the source.",
    ),
    Code(
        "MR-2007",
        "an event is not at its place",
        "The position an event names is not the offset it has: bytes are missing (MariaDB's encrypted files are so).",
        "Read from another member; MariaDB with encrypt_binlog=ON can't be read byte by byte.",
    ),
    Code(
        "MR-2008",
        "the binlog has a form that is not understood",
        "Events came in an order that no source transaction has.",
        "Report the file and position with the server's version; read from another member meanwhile.",
    ),
    Code(
        "MR-2009",
        "a binlog file was begun without checksums",
        "binlog_checksum was NONE when the source opened this file.",
        "SET GLOBAL binlog_checksum = 'CRC32'; FLUSH BINARY LOGS; then start the task behind the older files.",
    ),
    Code(
        "MR-2010",
        "the source names a binlog file in an unusable way",
        "The name is no plain file name that ends in a number.",
        "Check log_bin of the source and what is between it and us.",
    ),
    Code(
        "MR-2011",
        "these coordinates are not in the relay log",
        "The file was purged or the relay directory removed.",
        "Nothing to do: the task starts again and fetches what it needs from the source.",
    ),
)

# ---- 3xxx Kafka: 30xx publisher, 35xx reading topics --------------------------------------------
_KAFKA: tuple[Code, ...] = (
    Code(
        "MR-3001",
        "the Kafka broker can't be reached",
        "No broker answers, or the partition or transaction coordinator has no leader yet.",
        "Check `kafka.bootstrap` of the task and that the brokers run; the task goes on by itself.",
    ),
    Code(
        "MR-3002",
        "the outcome of a Kafka transaction is unknown",
        "A producer instance reported an error in the middle of its work.",
        "Nothing to do: the topic's tail is read and sending resumes behind it. If it repeats, read the broker's log.",
    ),
    Code(
        "MR-3003",
        "a newer producer took over",
        "Another worker initialised the same transactional id, or this one slept longer than a transaction lasts.",
        "Nothing to do: this worker asks ZooKeeper who owns the task.",
    ),
    Code(
        "MR-3004",
        "a row is larger than the topic allows",
        "The record with both images of the row named exceeds max.message.bytes of the topic.",
        "Raise max.message.bytes of the topic (and socket.request.max.bytes of the brokers), then"
        " `millrace task resume`; or exclude the table.",
    ),
    Code(
        "MR-3005",
        "Kafka does not let us",
        "Authentication failed, or rights are missing: Write and Describe on topic and transactional id, Read on the"
        " topic.",
        "Mend the credentials or ACLs named above, then `millrace task resume`.",
    ),
    Code(
        "MR-3006",
        "Kafka refuses a setting",
        "The broker or the client library refuses what was asked: a name, a limit, a version.",
        "Change the setting named above in the task or on the brokers, then `millrace task resume`.",
    ),
    Code(
        "MR-3007",
        "the topic is not there",
        "The broker doesn't know the topic: just created, being deleted, or deleted.",
        "If it was deleted by mistake, restore it; the task looks again by itself and stops if records are missing.",
    ),
    Code(
        "MR-3008",
        "Kafka answered with an unexpected error",
        "An error that has no meaning for what was asked; going on could lose rows.",
        "Report it with the broker's log; `millrace task resume` starts again behind what stands in the topic.",
    ),
    Code(
        "MR-3009",
        "the topic can't carry a set",
        "A set topic has one partition, cleanup.policy=delete, and room for at least 512 KiB a record.",
        "Correct the settings named, or name another topic in the task.",
    ),
    Code(
        "MR-3010",
        "a newer owner has written to the topic",
        "The tail of the topic names a greater epoch than our lease's.",
        "Nothing to do if the task moved; else see MR-4006.",
    ),
    Code(
        "MR-3011",
        "a foreign record stands in the topic",
        "Something other than a capture task of Millrace has written to the set topic.",
        "Find the writer and take its right away; then start the task on a new topic.",
    ),
    Code(
        "MR-3012",
        "the topic's tail does not say where to go on",
        "Records are left at the end of the topic, but no resolved record or not in sequence.",
        "Run `millrace topic verify TOPIC`; start the task on a new topic at a GTID that you know.",
    ),
    Code(
        "MR-3013",
        "another writer's Kafka transaction is open in the topic",
        "It hides every later record from readers; it may be a former task's of another name, or a foreign client's.",
        "Wait for its transaction.timeout.ms, or find it with `kafka-transactions.sh find-hanging` and abort it;"
        " then `millrace task resume`.",
    ),
    Code(
        "MR-3014",
        "a committed record does not stand where it must",
        "The broker confirmed a commit, but reading it back gives another record or none: a foreign writer, or a broker"
        " that lost or aborted it.",
        "Run `millrace topic verify TOPIC` and keep the broker's log; `millrace task resume` starts behind the tail.",
    ),
    Code(
        "MR-3015",
        "the topic does not end where it must",
        "After a commit the stable end is not exactly behind its marker: a foreign writer or an open transaction.",
        "Find the other writer of the topic and take its right away, then `millrace task resume`.",
    ),
    Code(
        "MR-3016",
        "commits can't be read back",
        "The reader that audits commits gets no answers.",
        "Nothing to do: the task starts again behind the topic's tail. If it lasts, check the brokers' load.",
    ),
    Code(
        "MR-3017",
        "the topic lost its tail",
        "Retention, a deletion or an empty new topic of the same name: nothing says how far capture was.",
        "Decide where to go on: start the task on a new topic at a GTID that every consumer has seen.",
    ),
    Code(
        "MR-3018",
        "committed records have gone from the topic",
        "The topic ends before records that were committed in this run: an unclean leader election or a restored disk.",
        "Set unclean.leader.election.enable=false; consumers that saw them skip by seq. `millrace task resume` sends"
        " them again.",
    ),
    Code(
        "MR-3501",
        "the topic can't be read",
        "No broker answers, the topic doesn't exist, or the right to read it is missing.",
        "Check the topic's name, --kafka and the ACLs.",
    ),
    Code(
        "MR-3502",
        "no broker was named",
        "Neither --kafka nor MILLRACE_KAFKA is set, and no task in ZooKeeper writes the topic.",
        "Give --kafka host:port; for a local stack `millrace up --json` names it.",
    ),
    Code(
        "MR-3503",
        "the topic violates its guarantees",
        "`millrace topic verify` found records that are missing, repeated, out of order or of a stale owner.",
        "Keep the topic and the brokers' logs, and report it; start the task on a new topic.",
    ),
)

# ---- 4xxx coordination and documents ------------------------------------------------------------
_CONTROL: tuple[Code, ...] = (
    Code(
        "MR-4001",
        "ZooKeeper can't be reached",
        "No server of the ensemble answers, or the session to it is broken.",
        "Check MILLRACE_ZOOKEEPER and the ensemble; running tasks go on and recover by themselves.",
    ),
    Code(
        "MR-4002",
        "the outcome of a change in ZooKeeper is unknown",
        "The connection broke after the change was sent and before its answer came.",
        "Nothing to do: the state is read again and the step repeated.",
    ),
    Code(
        "MR-4003",
        "the lease is lost",
        "The session ended or another worker owns the task now.",
        "Nothing to do: this worker stops the task and asks ZooKeeper who owns it.",
    ),
    Code(
        "MR-4004",
        "the lease is held by another owner",
        "The task moved, and its former owner has not let go yet or its session has not ended yet.",
        "Wait for the session timeout; if it lasts, end the worker that is named.",
    ),
    Code(
        "MR-4005",
        "no epoch can be made",
        "The generation, leader epoch or counter of the ensemble exceeds its share of the 63 bits of an epoch.",
        "Report it: the cluster needs a new name (MILLRACE_CLUSTER) and tasks created anew.",
    ),
    Code(
        "MR-4006",
        "fenced again and again while holding the lease",
        "The topic or target names a greater epoch than this ensemble gives: it was rebuilt or restored, or another"
        " cluster writes there.",
        "Make sure that no other cluster runs the task, then `millrace cluster raise-generation`"
        " and `millrace task resume NAME`.",
    ),
    Code(
        "MR-4007",
        "a node of the tree was changed by somebody else",
        "Two commands changed the same set or task at the same time.",
        "Look at it again (`millrace task show NAME`) and repeat the command.",
    ),
    Code(
        "MR-4008",
        "this scheduler is not the leader any more",
        "Its session ended while it was assigning tasks; another scheduler leads.",
        "Nothing to do: it stands by.",
    ),
    Code(
        "MR-4009",
        "the worker's name is taken",
        "A worker of this name is registered: it runs, or it died and its session has not ended yet.",
        "Wait for the session timeout, or give each worker a name of its own (--name).",
    ),
    Code(
        "MR-4010",
        "the runner of a task ended by itself",
        "The code that moves rows returned although nobody asked it to.",
        "It is started again; if it repeats, report it with the worker's log.",
    ),
    Code(
        "MR-4011",
        "a node of the tree can't be read",
        "It was written by a newer Millrace, by hand, or it is cut.",
        "Upgrade this program, or create the set or task again from its file.",
    ),
    Code(
        "MR-4012",
        "ZooKeeper refuses the request",
        "The ensemble answered with an error that is not about the connection.",
        "Read the error named; check the access rights of the tree and the size of the document.",
    ),
    Code(
        "MR-4013",
        "a task does not stop",
        "The code that moves rows was asked to end and has not ended in the time allowed.",
        "The worker keeps the lease until it ends; if it lasts, end the worker's process.",
    ),
    Code(
        "MR-4101",
        "a document is refused",
        "Fields are missing, unknown or wrong; every one is named with what was found and what is wanted.",
        "Correct the fields named and give the file again.",
    ),
    Code(
        "MR-4102",
        "a document is not YAML",
        "The text can't be parsed, or it uses aliases, tags or a key twice.",
        "Correct the line named; write plain `key: value` lines.",
    ),
    Code(
        "MR-4103",
        "a document of this name exists",
        "It was created before with other contents.",
        "Compare with `millrace task show NAME` (or set show); give --replace to put the new one in its place.",
    ),
    Code(
        "MR-4104",
        "no such set or task",
        "ZooKeeper holds no document of this name in this cluster.",
        "List them with `millrace set list` and `millrace task list`; check MILLRACE_CLUSTER.",
    ),
    Code(
        "MR-4105",
        "two tasks would write to the same topic",
        "A topic has one capture task: its records are ordered and numbered by a single writer.",
        "Name another topic, or delete the other task first.",
    ),
    Code(
        "MR-4106",
        "a secret can't be read",
        "The environment variable or file that a document refers to is missing, empty or not readable here.",
        "Set the variable or put the file in place on every worker; only references are kept in ZooKeeper.",
    ),
    Code(
        "MR-4107",
        "a document has an unknown format version",
        "It was written by a newer Millrace.",
        "Upgrade this program, or create the document again from its file.",
    ),
    Code(
        "MR-4201",
        "waited in vain",
        "The task did not reach the position in the time given.",
        "Look with `millrace status` what it waits for, then wait again.",
    ),
    Code(
        "MR-4202",
        "the task needs you",
        "It is blocked, paused or can't run, so waiting is in vain.",
        "Mend what is named, then `millrace task resume NAME`.",
    ),
    Code(
        "MR-4203",
        "the source of an apply task is unknown",
        "No capture task of this cluster writes the topic, so there is no primary to ask.",
        "Create the capture task, or ask the cluster that runs it.",
    ),
    Code(
        "MR-4204",
        "no primary was found",
        "None of the set's members that answer is a primary, or more than one is.",
        "Check the members in `millrace set show NAME` and that the primary is up.",
    ),
    Code(
        "MR-4205",
        "no ensemble was named",
        "MILLRACE_ZOOKEEPER is not set.",
        "export MILLRACE_ZOOKEEPER=host:port[,host:port]; for a local stack `millrace up --json` names it.",
    ),
    Code(
        "MR-4206",
        "a file can't be read",
        "The file given with -f does not exist or is not readable text.",
        "Check the path; `-f -` reads the standard input.",
    ),
    Code(
        "MR-4207",
        "no such error code",
        "The catalogue of this version does not have it.",
        "List all codes with `millrace explain`.",
    ),
)

# ---- 5xxx apply and target ----------------------------------------------------------------------
_APPLY: tuple[Code, ...] = (
    Code(
        "MR-5001",
        "the target can't be reached",
        "No writable server of the target set answers, or a connection to it broke.",
        "Check the servers of the set and the way to them; the task goes on by itself.",
    ),
    Code(
        "MR-5002",
        "the target refuses our account",
        "User or password is wrong, or the account may not connect from here.",
        "Correct user and password of the set document (`millrace set show NAME`), then `millrace task "
        "resume NAME`.",
    ),
    Code(
        "MR-5003",
        "the target is read-only",
        "The server we write to does not accept writes: it became a replica, or an operator closed it.",
        "Make one member of the target set writable; the task finds it by itself.",
    ),
    Code(
        "MR-5004",
        "the target has no connection left",
        "max_connections or the account's own limit is reached.",
        "Raise the limit or lower `lanes`; the task goes on by itself.",
    ),
    Code(
        "MR-5005",
        "a target transaction lost a lock",
        "A deadlock or a lock wait timeout: somebody else writes the same rows.",
        "Nothing to do: the target transaction is repeated. If it lasts, find who else writes there.",
    ),
    Code(
        "MR-5006",
        "the target's disk is full",
        "The server can't store more rows.",
        "Free disk space on the target; the task goes on by itself.",
    ),
    Code(
        "MR-5007",
        "the account may not do what apply needs",
        "A privilege is missing on the target.",
        "GRANT what the message names: all on the replicated databases and on `millrace`, PROCESS, and "
        "(MySQL) SELECT on performance_schema.",
    ),
    Code(
        "MR-5008",
        "the target's server is not fit",
        "Its version or a setting makes exact replication impossible.",
        "Change the setting that the message names, then `millrace task resume NAME`.",
    ),
    Code(
        "MR-5010",
        "a target row disagrees",
        "The row to change or delete is missing, or the row to insert is there already: somebody else "
        "wrote to the target, or the task began at the wrong place.",
        "Look at the row that is named and mend it, or set `conflict: overwrite` or `skip` for the task; "
        "then `millrace task resume NAME`.",
    ),
    Code(
        "MR-5011",
        "the target refuses a value",
        "The target's column is narrower than the source's, or a constraint of its own forbids the value.",
        "Make the target's table equal to the source's, then `millrace task resume NAME`.",
    ),
    Code(
        "MR-5012",
        "the target lacks a table",
        "The topic has rows of a table that the target does not have.",
        "Create it as it was at that position, or start the task where its CREATE TABLE stands; then "
        "`millrace task resume NAME`.",
    ),
    Code(
        "MR-5013",
        "the target's table lacks a column",
        "The topic has a column that the target's table does not have.",
        "Add the column to the target's table, then `millrace task resume NAME`.",
    ),
    Code(
        "MR-5014",
        "a row is larger than the target accepts",
        "The statement for one row exceeds the target's max_allowed_packet.",
        "SET GLOBAL max_allowed_packet on the target to at least what the message names, then `millrace "
        "task resume NAME`.",
    ),
    Code(
        "MR-5020",
        "a newer run of the task writes to the target",
        "The fence row on the target names another run or a greater epoch.",
        "Nothing to do: this run ends and asks ZooKeeper who owns the task.",
    ),
    Code(
        "MR-5021",
        "progress on the target was changed by somebody else",
        "The low-water mark is not where this run left it.",
        "Nothing to do: the task starts again from what the target says.",
    ),
    Code(
        "MR-5022",
        "the target's progress can't be read",
        "Its tables were made by another version, or changed by hand.",
        "Upgrade, or restore the database `millrace` of the target.",
    ),
    Code(
        "MR-5030",
        "records are missing in the topic",
        "`seq` has a hole or goes backwards: retention removed records that were not applied, or the topic "
        "was written to by somebody else.",
        "`millrace topic verify TOPIC`; load the target anew when records are really gone.",
    ),
    Code(
        "MR-5031",
        "the topic does not reach back to the start",
        "Retention removed the records with which the task should begin.",
        "Start the task at a GTID that the topic still holds, on a target that stands there.",
    ),
    Code(
        "MR-5032",
        "a record can't be read",
        "It is torn, not ours, or written by a newer Millrace.",
        "`millrace topic tail TOPIC` shows it; upgrade apply, or find out who wrote it.",
    ),
    Code(
        "MR-5033",
        "the structure of a record is unknown",
        "Neither the topic since the task's position, the target, nor the registry holds the schema of this id.",
        "Name the registry that the capture task uses in the task's document, then `millrace task resume NAME`.",
    ),
    Code(
        "MR-5034",
        "records of an older owner stand after those of a newer",
        "The epoch of the topic's control records goes down.",
        "`millrace topic verify TOPIC`; the topic was written by a stale process: tell us.",
    ),
    Code(
        "MR-5040",
        "it is unknown whether a DDL statement was executed",
        "The run ended while the statement ran, and what it names looks like neither before nor after.",
        "Look at the tables it names; then `millrace apply-ddl TASK --seq N --done` or `--execute`.",
    ),
    Code(
        "MR-5041",
        "the target refuses a DDL statement",
        "The target's structure differs from what the source had, or its flavour lacks what the statement asks.",
        "Execute what is wanted by hand, then `millrace apply-ddl TASK --seq N --done`; or mend the target "
        "and `millrace task resume NAME`.",
    ),
    Code(
        "MR-5042",
        "a statement is not understood",
        "It is none of the statements that are applied, nor one that may be left out.",
        "Execute what is wanted by hand, then `millrace apply-ddl TASK --seq N --done`, or `--execute` to "
        "run it as it stands.",
    ),
    Code(
        "MR-5050",
        "a Spark job failed",
        "A worker process or executor ended, or Spark could not run the job.",
        "Nothing to do: the task starts again from what the target says. If it repeats, read the driver's log.",
    ),
    Code(
        "MR-5051",
        "Spark can't be started",
        "Java, PySpark or the Kafka connector is missing.",
        "Run `make setup`; MILLRACE_HOME must hold jars/spark.",
    ),
    Code(
        "MR-5052",
        "Spark can't read the topic",
        "The broker is away, or the topic or its records are gone.",
        "Check broker and topic; the task goes on by itself.",
    ),
    Code(
        "MR-5060",
        "source and target can't be compared",
        "A table is missing on one side or its columns differ.",
        "Bring the structures together; the message names the table.",
    ),
)

# ---- 6xxx record schema, conversion and DDL: 60xx schemas and registry, 65xx converter ----------
_RECORD: tuple[Code, ...] = (
    Code(
        "MR-6001",
        "not a GTID or GTID set",
        "A text or value is not a GTID (set) of the flavour it is used with.",
        "Write it as the server prints it: `SELECT @@gtid_executed` (MySQL), `SELECT @@gtid_binlog_pos` (MariaDB).",
    ),
    Code(
        "MR-6002",
        "a GTID sequence went backwards",
        "A MariaDB source gave a sequence number at or below one it gave before in the same domain.",
        "Set `SET GLOBAL gtid_strict_mode=ON` on every member; compare the target, then start at a named GTID.",
    ),
    Code(
        "MR-6003",
        "a binlog event can't be read",
        "The bytes of an event don't have the form that its type prescribes.",
        "Check the file with `mysqlbinlog --verify-binlog-checksum`; remove the relay directory to fetch it anew.",
    ),
    Code(
        "MR-6004",
        "a table map without full metadata",
        "The source writes table maps without column names (binlog_row_metadata=MINIMAL).",
        "On every member: `SET GLOBAL binlog_row_metadata=FULL` (and in its configuration).",
    ),
    Code(
        "MR-6005",
        "a column type that is not supported",
        "A table has a column whose type Millrace can't carry without loss.",
        "Exclude the table in the task document, or change the column's type and start the task behind the change.",
    ),
    Code(
        "MR-6006",
        "an unknown collation",
        "A column has a collation id that Millrace doesn't know, so its bytes can't be turned into text.",
        "Exclude the table in the task document, and report the collation with the server's version.",
    ),
    Code(
        "MR-6007",
        "a record can't be decoded",
        "Bytes in the topic are not a record of this project, or not of the schema they name.",
        "Check that nobody else writes to the topic: `millrace topic verify TOPIC` names the offset.",
    ),
    Code(
        "MR-6008",
        "not relay coordinates",
        "A text is not of the form sub-directory/file:offset, or a name in it has no number.",
        "Take the coordinates from `millrace status --json` as they are.",
    ),
    Code(
        "MR-6009",
        "a schema id nobody explains",
        "A record names a schema that stands neither before it in the topic nor in the registry.",
        "Start reading at an earlier offset, or give the registry that the capture task writes to.",
    ),
    Code(
        "MR-6010",
        "a schema that is not ours",
        "An Avro schema lacks the properties that Millrace writes, so its columns can't be known.",
        "Check that the topic was written by a capture task of Millrace.",
    ),
    Code(
        "MR-6020",
        "the schema registry can't be reached",
        "The registry did not answer, or answered that it has trouble of its own.",
        "Check the address in the task document and that the registry runs: `curl <registry>/subjects`.",
    ),
    Code(
        "MR-6021",
        "the schema registry refused",
        "The registry answered that the request is wrong: a schema it doesn't take, no rights, another kind of server.",
        "Read its message above; compatibility of the topic's subjects must be NONE.",
    ),
    Code(
        "MR-6022",
        "the registry's topic is not usable",
        "The topic that stores the built-in registry has other settings or contents than the registry wrote.",
        "Give it one partition and cleanup.policy=compact; never write to it by hand.",
    ),
    Code(
        "MR-6023",
        "another registry has taken over",
        "A second built-in registry was started on the same topic, so this one may write no more.",
        "Keep one of the two; clients only need the address of the one that runs.",
    ),
)
_CONVERTER: tuple[Code, ...] = (
    Code(
        "MR-6501",
        "rows that were not logged as rows",
        "A session changed rows in statement format (binlog_format=STATEMENT or MIXED): the rows are not in the binlog.",
        "On every member: `SET GLOBAL binlog_format=ROW`; load the named tables again, then start behind the statement.",
    ),
    Code(
        "MR-6502",
        "an event type that is not supported",
        "The binlog holds an event that this version does not know, so it can't say that no row is lost.",
        "Report the type with the server's version; a newer Millrace may know it.",
    ),
    Code(
        "MR-6503",
        "an anonymous transaction",
        "The source logged a transaction without a GTID (gtid_mode is not ON).",
        "On every member: `SET GLOBAL gtid_mode=ON` (in its steps), then start the task at a GTID behind it.",
    ),
    Code(
        "MR-6504",
        "row images are not whole",
        "A session logged rows with binlog_row_image=MINIMAL or NOBLOB: columns are missing.",
        "On every member: `SET GLOBAL binlog_row_image=FULL`; load the table again, then start behind the event.",
    ),
    Code(
        "MR-6505",
        "JSON values logged in parts",
        "A session logged with binlog_row_value_options=PARTIAL_JSON: whole values are missing.",
        "On every member: `SET GLOBAL binlog_row_value_options=''`; load the table again, then start behind the event.",
    ),
    Code(
        "MR-6506",
        "binlog events in an order that no source transaction has",
        "Events are missing or out of place in the relay log.",
        "Check the file with `mysqlbinlog`; remove the relay directory to fetch it anew.",
    ),
    Code(
        "MR-6507",
        "rows that are rolled back in the binlog",
        "A transaction mixed tables with and without transactions and was rolled back: which rows stand is not in the binlog.",
        "Compare the tables it names (`millrace compare`), then start the task behind it.",
    ),
    Code(
        "MR-6508",
        "the source transaction to go on with is not the next one",
        "A large transaction was delivered in part, and the relay log does not continue with it.",
        "Let the task read from the server (or a copy of its binlog) that it read from before.",
    ),
    Code(
        "MR-6509",
        "an encrypted binlog",
        "The binlog file is encrypted (MariaDB encrypt_binlog), and was not decrypted by the server.",
        "Read from a member with `encrypt_binlog=OFF`.",
    ),
    Code(
        "MR-6510",
        "the source lost events",
        "The server wrote an incident event: changes are missing in its binlog from here on.",
        "Compare the tables, load what differs again, then start the task behind the event.",
    ),
    Code(
        "MR-6511",
        "the prepared part of an XA transaction is missing",
        "An XA COMMIT was logged, and the relay log does not reach back to its XA PREPARE.",
        "Start the task at a GTID in front of the XA PREPARE, or load its tables again and start behind the XA COMMIT.",
    ),
    Code(
        "MR-6512",
        "a record that is too large",
        "One row needs more than 1 GiB as a record, or one compressed value inflates to more.",
        "Exclude the table in the task document, or make the row smaller.",
    ),
    Code(
        "MR-6513",
        "an ALTER that is logged in two phases",
        "MariaDB logged START ALTER (binlog_alter_two_phase=ON).",
        "On every member: `SET GLOBAL binlog_alter_two_phase=OFF`, then start the task behind the statement.",
    ),
)

# ---- 7xxx security ------------------------------------------------------------------------------
_SECURITY: tuple[Code, ...] = ()

# ---- 8xxx installation and local servers --------------------------------------------------------
_HOUSE: tuple[Code, ...] = (
    Code(
        "MR-8001",
        "two installations are mixed",
        "The packages of Millrace were loaded from more than one folder, so an old copy may be running.",
        "Uninstall the other copy (`pip uninstall millrace`) or start from a fresh virtual environment.",
    ),
    Code(
        "MR-8002",
        "a needed program is missing",
        "A program that can't be fetched is not installed.",
        "Install the named program with the system's package manager.",
    ),
    Code(
        "MR-8003",
        "a download failed",
        "A server could not be fetched into the cache.",
        "Check the network and run `make setup` again; what was fetched is kept.",
    ),
    Code(
        "MR-8004",
        "a local server did not start",
        "An embedded server ended or did not answer in time while it was started.",
        "Read the last lines of its log above; free memory and disk, then start again.",
    ),
    Code(
        "MR-8005",
        "a server program is not in the cache",
        "The embedded servers have not been fetched, or this flavour can't be fetched on this system.",
        "Run `make setup`; for MySQL give your own with `--mysqld PATH` or MILLRACE_MYSQLD=PATH.",
    ),
    Code(
        "MR-8006",
        "the local stack is in the way",
        "`millrace up` found a stack that runs already, or `millrace down` found none.",
        "Look with `millrace up --json`; end the running stack with `millrace down`.",
    ),
    Code(
        "MR-8007",
        "a local server refused a statement",
        "An embedded server answered the set-up of the local stack with an error or not at all.",
        "Read the server's log in the stack's folder; end the stack with `millrace down` and start again.",
    ),
)

# ---- 9xxx internal ------------------------------------------------------------------------------
_INTERNAL: tuple[Code, ...] = (
    Code(
        "MR-9001",
        "an unexpected error",
        "Something happened that no part of Millrace accounts for: a defect.",
        "Keep the log and report it; the task resumes from its last durable progress.",
    ),
    Code(
        "MR-9002",
        "an injected fault",
        "MILLRACE_FAULT asked for an error at a named fault point (tests only).",
        "Unset MILLRACE_FAULT.",
    ),
)


def _catalogue(*sections: tuple[Code, ...]) -> Mapping[str, Code]:
    """Index by code; a number given twice is a defect found at import."""
    found: dict[str, Code] = {}
    for section in sections:
        for code in section:
            if code.code in found:
                raise ValueError(f"{code.code} is declared twice")
            found[code.code] = code
    return MappingProxyType(found)


CATALOGUE: Mapping[str, Code] = _catalogue(
    _SOURCE,
    _RELAY,
    _KAFKA,
    _CONTROL,
    _APPLY,
    _RECORD,
    _CONVERTER,
    _SECURITY,
    _HOUSE,
    _INTERNAL,
)
