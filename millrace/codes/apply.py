"""5xxx: apply and target."""

from millrace.codes.code import Code

CODES: tuple[Code, ...] = (
    Code(
        "MR-5001",
        "the target can't be reached",
        "No writable server of the target set answers, a connection to it broke, or it is no working member of its group"
        " (Group Replication, Galera) now.",
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
        "No member of the target set accepts writes, or more than one does: a failover is under way, or an operator"
        " closed it.",
        "Make exactly one member of the target set writable; the task finds it by itself.",
    ),
    Code(
        "MR-5004",
        "the target is at a limit",
        "max_connections or the account's own limit is reached, or the server has no memory or threads left.",
        "Raise the limit or lower `lanes`; the task goes on by itself.",
    ),
    Code(
        "MR-5005",
        "a target transaction lost a lock",
        "A deadlock or a lock wait timeout: somebody else writes the same rows, here or on another member of the group.",
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
        "the account may not do what is needed of it",
        "A privilege is missing: on the target for apply, on the source or the target for `millrace compare`.",
        "GRANT what the message names: apply needs, on the target, all on the replicated databases and on `millrace`, and"
        " PROCESS; `millrace compare` needs SELECT on both sides.",
    ),
    Code(
        "MR-5008",
        "the task asks for what apply can't do yet",
        "A field of the task's document asks for something that this version does not have.",
        "Change the field that the message names (`millrace task create -f FILE --replace`), or upgrade apply.",
    ),
    Code(
        "MR-5009",
        "the target's TLS is not as the set document asks",
        "The server offers none, its certificate is not signed by the CA that the document names or is made out for"
        " another name, or the CA's file can't be read here.",
        "Set `tls` and `tls_ca` of the set document to what the server has (`millrace set create -f FILE --replace`), or"
        " give the server a certificate; then `millrace task resume NAME`.",
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
        "MR-5015",
        "the target's table takes no part in transactions",
        "Its engine (MyISAM, Aria, MEMORY, CSV, …) can't roll rows back: after a deadlock or a crash they would be written"
        " again, and doubled where no key forbids it.",
        "ALTER TABLE … ENGINE=InnoDB on the target, then `millrace task resume NAME`.",
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
        "the target's progress is not what this task left",
        "Its tables were made by another version or changed by hand, or a task of this name read another topic before.",
        "Upgrade, or restore the database `millrace` of the target; for another topic give the task another name.",
    ),
    Code(
        "MR-5030",
        "records are missing in the topic",
        "`seq` has a hole or goes backwards: retention removed records that were not applied, or the topic "
        "was written to by somebody else, or made anew.",
        "`millrace topic verify TOPIC`; load the target anew when records are really gone.",
    ),
    Code(
        "MR-5031",
        "the topic does not reach back to the start",
        "Retention removed the records with which the task should begin, or the topic's capture task began behind the"
        " start.",
        "Start the task at a GTID that the topic still holds, on a target that stands there.",
    ),
    Code(
        "MR-5032",
        "a record can't be read",
        "The value at the offset named is torn, not of its schema, not ours, or written by a newer Millrace.",
        "`millrace topic verify TOPIC` says what stands there; upgrade apply, or find out who wrote it.",
    ),
    Code(
        "MR-5033",
        "the structure of a record is unknown",
        "Neither the topic since the task's position, the target, nor the registry holds the schema of this id; or the"
        " registry does not answer.",
        "Name the registry that the capture task uses in the task's document and see that it runs, then `millrace task"
        " resume NAME`.",
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
        "MR-5043",
        "no statement waits for a decision",
        "The task is no apply task, or none of its statements of this seq is blocked.",
        "Read the seq in `millrace status`; a statement that is not blocked needs no decision.",
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
        "Java, PySpark or the Kafka connector is missing, the JVM was killed while it started, or there is no such master.",
        "Run `make setup`; MILLRACE_HOME must hold jars/spark.",
    ),
    Code(
        "MR-5052",
        "Spark can't read the topic",
        "The broker is away, or the topic or its records are gone.",
        "Check broker and topic; the task goes on by itself.",
    ),
    Code(
        "MR-5053",
        "Spark's JVM has ended",
        "It was killed, or it ran out of memory: an apply driver can't go on without it, and ends with status 75.",
        "Start the driver again, as a service manager does by itself; its tasks go on from what the target says. If it "
        "repeats, give Spark more memory with `--conf spark.driver.memory=4g`.",
    ),
    Code(
        "MR-5060",
        "there is nothing to compare with",
        "The task named is no apply task, so it has no target.",
        "Name an apply task: `millrace task list` says which are.",
    ),
)
