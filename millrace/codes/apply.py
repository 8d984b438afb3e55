"""5xxx: apply and target."""

from millrace.codes.code import Branch, Code

CODES: tuple[Code, ...] = (
    Code(
        "MR-5001",
        "the target can't be reached",
        "No writable server of the target set answers, a connection to it broke, or it is no working member of its group"
        " (Group Replication, Galera) now.",
        "Check the servers of the set and the way to them; the task goes on by itself.",
        Branch.RETRIES,
    ),
    Code(
        "MR-5002",
        "the target refuses our account",
        "User or password is wrong, or the account may not connect from here.",
        "Correct user and password of the set document (`millrace set show NAME`), then `millrace task "
        "resume NAME`.",
        Branch.OPERATOR,
    ),
    Code(
        "MR-5003",
        "the target is read-only",
        "No member of the target set accepts writes, or more than one does: a failover is under way, or an operator"
        " closed it.",
        "Make exactly one member of the target set writable; the task finds it by itself.",
        Branch.RETRIES,
    ),
    Code(
        "MR-5004",
        "the target is at a limit",
        "max_connections or the account's own limit is reached, or the server has no memory or threads left.",
        "Raise the limit or lower `lanes`; the task goes on by itself.",
        Branch.RETRIES,
    ),
    Code(
        "MR-5005",
        "a target transaction lost a lock",
        "A deadlock or a lock wait timeout: somebody else writes the same rows, here or on another member of the group.",
        "Nothing to do: the target transaction is repeated. If it lasts, find who else writes there.",
        Branch.RETRIES,
    ),
    Code(
        "MR-5006",
        "the target's disk is full",
        "The server can't store more rows.",
        "Free disk space on the target; the task goes on by itself.",
        Branch.RETRIES,
    ),
    Code(
        "MR-5007",
        "the account may not do what is needed of it",
        "A privilege is missing: on the target for apply, on the source or the target for `millrace compare`.",
        "GRANT what the message names: apply needs, on the target, all on the replicated databases and on `millrace`, and"
        " PROCESS; `millrace compare` needs SELECT on both sides.",
        Branch.OPERATOR,
    ),
    Code(
        "MR-5008",
        "the task asks for what apply can't do yet",
        "A field of the task's document asks for something that this version does not have.",
        "Change the field that the message names (`millrace task create -f FILE --replace`), or upgrade apply.",
        Branch.OPERATOR,
    ),
    Code(
        "MR-5009",
        "the target's TLS is not as the set document asks",
        "The server offers none, its certificate is not signed by the CA that the document names or is made out for"
        " another name, or the CA's file can't be read here.",
        "Set `tls` and `tls_ca` of the set document to what the server has (`millrace set create -f FILE --replace`), or"
        " give the server a certificate; then `millrace task resume NAME`.",
        Branch.OPERATOR,
    ),
    Code(
        "MR-5010",
        "a target row disagrees",
        "The row to change or delete is missing, or the row to insert is there already: somebody else "
        "wrote to the target, or the task began at the wrong place.",
        "Look at the row that is named and mend it, or set `conflict: overwrite` or `skip` for the task; "
        "then `millrace task resume NAME`.",
        Branch.OPERATOR,
    ),
    Code(
        "MR-5011",
        "the target refuses a value",
        "The target's column is narrower than the source's, or a constraint of its own forbids the value.",
        "Make the target's table equal to the source's, then `millrace task resume NAME`.",
        Branch.OPERATOR,
    ),
    Code(
        "MR-5012",
        "the target lacks a table",
        "The topic has rows of a table that the target does not have.",
        "Create it as it was at that position, or start the task where its CREATE TABLE stands; then "
        "`millrace task resume NAME`.",
        Branch.OPERATOR,
    ),
    Code(
        "MR-5013",
        "the target's table lacks a column",
        "The topic has a column that the target's table does not have.",
        "Add the column to the target's table, then `millrace task resume NAME`.",
        Branch.OPERATOR,
    ),
    Code(
        "MR-5014",
        "a row is larger than the target accepts",
        "The statement for one row exceeds the target's max_allowed_packet.",
        "SET GLOBAL max_allowed_packet on the target to at least what the message names, then `millrace "
        "task resume NAME`.",
        Branch.OPERATOR,
    ),
    Code(
        "MR-5015",
        "the target's table takes no part in transactions",
        "Its engine (MyISAM, Aria, MEMORY, CSV, …) can't roll rows back: after a deadlock or a crash they would be written"
        " again, and doubled where no key forbids it.",
        "ALTER TABLE … ENGINE=InnoDB on the target, then `millrace task resume NAME`.",
        Branch.OPERATOR,
    ),
    Code(
        "MR-5016",
        "it is not certain which member of the target set is its primary",
        "One member is writable, but half of the members or more do not answer, or one replicates from a member that does"
        " not answer. The writable one may be a former primary behind a partition, and rows written there would be lost.",
        "Bring the members that the message names back, or make them reachable from the driver's machine; the task tries"
        " again by itself. If such a member is gone for good, make sure that it can't come back as a primary and take it out"
        " of the set document (`millrace set create -f FILE --replace`). A set of two members needs both to answer when a"
        " run starts.",
        Branch.RETRIES,
    ),
    Code(
        "MR-5017",
        "the target generates another key",
        "A generated column belongs to the key by which rows are found, and the target's expression gives another"
        " value than the record has.",
        "Give the column the source's expression, or make it a plain column, then `millrace task resume NAME`.",
        Branch.OPERATOR,
    ),
    Code(
        "MR-5018",
        "triggers on the target fire for applied rows",
        "The topic already has the rows that the source's triggers wrote. A trigger of the target's table writes again for"
        " each applied row. The task runs on; the target may differ from the source.",
        "DROP TRIGGER on the target, or keep it if its effect is wanted; then `millrace task pause NAME` and `millrace task"
        " resume NAME`: triggers are looked for when a task starts.",
        Branch.RETRIES,
    ),
    Code(
        "MR-5019",
        "a statement would change more than one row",
        "No unique key of the target's table names the row: its columns are all generated and none is a key, or the"
        " key that the task found when it started is gone. Nothing was changed.",
        "Give the table the source's primary key, then `millrace task resume NAME`.",
        Branch.OPERATOR,
    ),
    Code(
        "MR-5020",
        "a newer run of the task writes to the target",
        "The fence row on the target names another run or a greater epoch.",
        "Nothing to do: this run ends and asks ZooKeeper who owns the task.",
        Branch.FENCED,
    ),
    Code(
        "MR-5021",
        "progress on the target was changed by somebody else",
        "The low-water mark is not where this run left it.",
        "Nothing to do: the task starts again from what the target says.",
        Branch.RETRIES,
    ),
    Code(
        "MR-5022",
        "the target's progress is not what this task left",
        "Its tables were made by another version or changed by hand, or a task of this name read another topic before.",
        "Upgrade, or restore the database `millrace` of the target; for another topic give the task another name.",
        Branch.OPERATOR,
    ),
    Code(
        "MR-5023",
        "the target's table was altered while the task ran",
        "Rows seem to disagree, and the table has other columns or keys than when the task read them: an operator altered"
        " it. Changes that share a key which the task did not know may have been written in another order.",
        "Nothing to do: nothing of that target transaction was written, the task reads the tables and starts again.",
        Branch.RETRIES,
    ),
    Code(
        "MR-5030",
        "records are missing in the topic",
        "`seq` has a hole: retention removed records that were not applied, or another program wrote to the topic.",
        "Run `millrace topic verify TOPIC`. If records are gone, load the target again and apply with a task of another"
        " name, with `start` at the GTID set of the load.",
        Branch.OPERATOR,
    ),
    Code(
        "MR-5031",
        "the topic does not reach back to the start",
        "Retention removed the records with which the task should begin, or the topic's capture task began behind the"
        " start.",
        "Start the task at a GTID that the topic still holds, on a target that stands there.",
        Branch.OPERATOR,
    ),
    Code(
        "MR-5032",
        "a record can't be read",
        "The value at the offset named is torn, not of its schema, not ours, or written by a newer Millrace.",
        "`millrace topic verify TOPIC` says what stands there; upgrade apply, or find out who wrote it.",
        Branch.OPERATOR,
    ),
    Code(
        "MR-5033",
        "the structure of a record is unknown",
        "Neither the topic since the task's position, the target, nor the registry holds the schema of this id; or the"
        " registry does not answer.",
        "Name the registry that the capture task uses in the task's document and see that it runs, then `millrace task"
        " resume NAME`.",
        Branch.EITHER,
    ),
    Code(
        "MR-5034",
        "records of an older owner stand after those of a newer",
        "The epoch of the topic's control records goes down.",
        "`millrace topic verify TOPIC`; the topic was written by a stale process: tell us.",
        Branch.OPERATOR,
    ),
    Code(
        "MR-5035",
        "the topic is not the one that the task has applied",
        "The topic was deleted and created again under its name, the document names other brokers, or the broker lost the"
        " topic's end: its topic id is not the one in the target's progress, it ends before the offset that the task has"
        " read to, or its records step back behind the seq or the GTID set that the task has applied. Nothing of it was"
        " applied.",
        "If the document names the wrong brokers, correct `kafka` and resume the task. If the topic is new, load the"
        " target again, delete this task, and create one with another name and `start` at the GTID set of the load; the"
        " topic must reach back to it.",
        Branch.OPERATOR,
    ),
    Code(
        "MR-5036",
        "a row's schema id is that of another table",
        "The schema that the task has for the id describes another table, or the table of another set. The registry was"
        " rebuilt and gave the id to another schema, or the document names another registry than the capture task uses."
        " Nothing of the batch was applied.",
        "Correct `registry` in the task's document, or restore the registry's contents, then `millrace task resume NAME`."
        " Without the old contents these rows can't be read: capture to a new topic, load the target again, and apply"
        " from that topic.",
        Branch.OPERATOR,
    ),
    Code(
        "MR-5040",
        "it is unknown whether a DDL statement was executed",
        "The run ended while the statement ran, and what it names looks like neither before nor after.",
        "Look at the tables it names; then `millrace apply-ddl TASK --seq N --done` or `--execute`.",
        Branch.OPERATOR,
    ),
    Code(
        "MR-5041",
        "the target refuses a DDL statement",
        "The target's structure differs from what the source had, or its flavour lacks what the statement asks.",
        "Execute what is wanted by hand, then `millrace apply-ddl TASK --seq N --done`; or mend the target "
        "and `millrace task resume NAME`.",
        Branch.OPERATOR,
    ),
    Code(
        "MR-5042",
        "a statement is not understood",
        "It is none of the statements that are applied, nor one that may be left out.",
        "Execute what is wanted by hand, then `millrace apply-ddl TASK --seq N --done`, or `--execute` to "
        "run it as it stands.",
        Branch.OPERATOR,
    ),
    Code(
        "MR-5043",
        "no statement waits for a decision",
        "The task is no apply task, or none of its statements of this seq is blocked.",
        "Read the seq in `millrace status`; a statement that is not blocked needs no decision.",
        Branch.OPERATOR,
    ),
    Code(
        "MR-5050",
        "a Spark job failed",
        "A worker process or executor ended, or Spark could not run the job.",
        "Nothing to do: the task starts again from what the target says. If it repeats, read the driver's log.",
        Branch.RETRIES,
    ),
    Code(
        "MR-5051",
        "Spark can't be started",
        "Java, PySpark or the Kafka connector is missing, the JVM was killed while it started, or there is no such master.",
        "Run `make setup`, or `python -m deploy.servers.fetch spark` where pip installed Millrace; MILLRACE_HOME must hold jars/spark.",
        Branch.OPERATOR,
    ),
    Code(
        "MR-5052",
        "the topic can't be read",
        "No broker answers at the address of the task's document, the account may not read the topic, or records that are"
        " wanted are gone.",
        "Check that a broker answers at the address that the message names, from the driver's machine; correct `kafka`"
        " in the document if it is wrong. The task tries again by itself.",
        Branch.RETRIES,
    ),
    Code(
        "MR-5053",
        "Spark's JVM has ended",
        "It was killed, or it ran out of memory: an apply driver can't go on without it, and ends with status 75.",
        "Start the driver again, as a service manager does by itself; its tasks go on from what the target says. If it "
        "repeats, give Spark more memory with `--conf spark.driver.memory=4g`.",
        Branch.RETRIES,
    ),
    Code(
        "MR-5054",
        "the topic does not exist",
        "The brokers that the task's document names have no topic of this name: its capture task has not created it yet,"
        " the name is wrong, or the topic was deleted.",
        "Start the capture task, or correct `topic` or `kafka` in the document. The task tries again by itself.",
        Branch.RETRIES,
    ),
    Code(
        "MR-5060",
        "there is nothing to compare with",
        "The task named is a capture task, and not exactly one apply task has its topic.",
        "Name an apply task: `millrace task list` says which are.",
        Branch.OPERATOR,
    ),
)
