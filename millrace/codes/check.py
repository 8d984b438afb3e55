"""4160 to 4199: `millrace check`, for conditions that no running task reports."""

from millrace.codes.code import Branch, Code

CODES: tuple[Code, ...] = (
    Code(
        "MR-4160",
        "two members of a set have the same server id",
        "A server ignores changes that carry its own id, so replicas of these members lose changes.",
        "Give each member its own `server_id` in its configuration and restart it. On MySQL, also delete `auto.cnf` of a"
        " copied data directory.",
        Branch.OPERATOR,
    ),
    Code(
        "MR-4161",
        "an account has more privileges than it needs",
        "A person who reads the password of the account can do more than Millrace does.",
        "REVOKE the privileges that the message names. `millrace grants print SET` prints what is needed.",
        Branch.OPERATOR,
    ),
    Code(
        "MR-4162",
        "a source purges its binlogs before the longest pause is over",
        "A task that is paused or blocked for longer than the server keeps its binlogs can't continue (MR-1031), unless"
        " the relay log has the files.",
        "SET GLOBAL binlog_expire_logs_seconds to the longest pause that you expect, also in the server's configuration, or"
        " set `relay: {mode: always}` in the set document. `--pause-h` sets the pause that is checked.",
        Branch.OPERATOR,
    ),
    Code(
        "MR-4163",
        "the clocks of two machines differ",
        "Lags that compare the source's commit time with another clock are wrong by the difference. No row is affected.",
        "Synchronize the clocks with NTP on the server and on this machine.",
        Branch.OPERATOR,
    ),
    Code(
        "MR-4164",
        "a table has no usable unique key",
        "Its rows are found by all columns, in one lane and in the order of the source, so it is applied slowly. Its"
        " records have no key.",
        "Add a primary key, or a unique key over columns that are NOT NULL, on the source and on the target.",
        Branch.OPERATOR,
    ),
    Code(
        "MR-4165",
        "the topic removes records before the longest pause is over",
        "A reader that pauses for longer than `retention.ms` misses records (MR-5030 of an apply task).",
        "Set `topic_settings: {retention_ms: …}` in the document of a new task, or raise the topic's `retention.ms` with"
        " kafka-configs. `--pause-h` sets the pause that is checked.",
        Branch.OPERATOR,
    ),
    Code(
        "MR-4166",
        "a row may be larger than the topic allows",
        "The columns of the table allow a row whose two images are larger than the topic's `max.message.bytes`. Such a row"
        " blocks the task (MR-3004).",
        "Raise the topic's `max.message.bytes` with kafka-configs, or make sure that no row becomes so large.",
        Branch.OPERATOR,
    ),
    Code(
        "MR-4167",
        "the schema registry accepts no schemas",
        "Its mode is not READWRITE. A task that meets a new table or an altered one stops (MR-6021).",
        'PUT {"mode": "READWRITE"} to /mode of the registry.',
        Branch.OPERATOR,
    ),
    Code(
        "MR-4168",
        "the schema registry compares versions of a schema",
        "Its compatibility is not NONE, so it refuses the schema of a table that was altered in another way than its rule"
        " allows (MR-6021). A DDL statement of the source then stops the task.",
        'PUT {"compatibility": "NONE"} to /config of the registry.',
        Branch.OPERATOR,
    ),
    Code(
        "MR-4169",
        "a ZooKeeper server does not answer",
        "The others have a majority, so tasks run. The ensemble tolerates fewer further failures.",
        "Start the server, or remove it from MILLRACE_ZOOKEEPER.",
        Branch.OPERATOR,
    ),
    Code(
        "MR-4170",
        "the ensemble grants another session timeout",
        "Its `minSessionTimeout` and `maxSessionTimeout` do not allow the one that was asked for. The tasks of a dead worker"
        " move after the granted time.",
        "Change the bounds in the ensemble's configuration, or set MILLRACE_ZOOKEEPER_TIMEOUT_S to a value within them.",
        Branch.OPERATOR,
    ),
    Code(
        "MR-4171",
        "the target accepts no LOAD DATA LOCAL",
        "`local_infile` is OFF, so large runs of inserts are sent as statements, which costs about a third more.",
        "SET GLOBAL local_infile = ON, also in the server's configuration.",
        Branch.OPERATOR,
    ),
    Code(
        "MR-4172",
        "source and target differ in the case of table names",
        "If only the target ignores case, two tables of the source whose names differ only in case become one table there. If"
        " only the source ignores it, a statement that names a table in other letters than its own blocks the task or, with"
        " IF EXISTS or OR REPLACE, misses the table.",
        "Initialize the target with the source's `lower_case_table_names`. If only the target ignores case, it is enough to"
        " `exclude` one of such tables.",
        Branch.OPERATOR,
    ),
    Code(
        "MR-4173",
        "the target shortens the wait for row locks",
        "The server's `maximum-innodb-lock-wait-timeout` is below the time that Millrace asks for, so a batch that waits"
        " for another session fails and is repeated earlier (MR-5005).",
        "Raise `maximum-innodb-lock-wait-timeout` in the server's configuration, or remove it.",
        Branch.OPERATOR,
    ),
    Code(
        "MR-4174",
        "little disk space is free for the relay log",
        "The disk has less free space than `relay.purge.remain_gb` keeps, so relay files are deleted as soon as they are"
        " published. If the disk is full, capture waits (MR-2002).",
        "Free space on the disk, or choose another `--relay-dir` of the worker.",
        Branch.OPERATOR,
    ),
    Code(
        "MR-4175",
        "a process may open few files",
        "Each task has open relay files and connections. At the limit, tasks retry until others release theirs (MR-4014).",
        "Raise the limit of the service: `ulimit -n 65536`, or LimitNOFILE=65536 of its systemd unit.",
        Branch.OPERATOR,
    ),
    Code(
        "MR-4176",
        "little memory is free",
        "A worker that runs out of memory is killed by the system, and its tasks start again elsewhere (MR-4015).",
        "Stop other processes on this machine, or run the worker on one with more memory.",
        Branch.OPERATOR,
    ),
    Code(
        "MR-4177",
        "the kernels are not compiled",
        "The first start of a worker compiles them, which takes about a minute.",
        "Start a worker or an apply driver once as the same user, with the same MILLRACE_HOME.",
        Branch.OPERATOR,
    ),
    Code(
        "MR-4178",
        "a check did not end in time",
        "A server accepts connections and does not answer, or the check has too much to read. What it has found until then is"
        " shown.",
        "Repeat the command with a larger --timeout, and look at the server that the line names.",
        Branch.OPERATOR,
    ),
    Code(
        "MR-4179",
        "the primary of a source set logs only some databases",
        "`binlog_do_db` or `binlog_ignore_db` is set. Changes of other databases are in no binlog, so no task can publish"
        " them.",
        "Remove `binlog_do_db` and `binlog_ignore_db` from the server's configuration and restart it, unless the tasks need"
        " only the databases that are logged.",
        Branch.OPERATOR,
    ),
)
