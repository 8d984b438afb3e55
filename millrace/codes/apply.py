"""5xxx: apply and target."""

from millrace.codes.code import Branch, Code

CODES: tuple[Code, ...] = (
    Code(
        "MR-5001",
        "the target can't be reached",
        "No writable server of the target set answers, a connection was lost, or the server is currently not a working"
        " member of its group (Group Replication, Galera).",
        "Check the servers of the set and the network to them. The task retries by itself.",
        Branch.RETRIES,
    ),
    Code(
        "MR-5002",
        "the target refuses the account",
        "The user name or password is wrong, or the account may not connect from this host.",
        "Correct `user` and `password` in the set document (`millrace set show SET`), then `millrace task resume TASK`."
        " A task that was running retries by itself for some minutes first.",
        Branch.OPERATOR,
    ),
    Code(
        "MR-5003",
        "the target is read-only",
        "No member of the target set accepts writes, or more than one does. A failover is in progress, or an operator made"
        " the server read-only.",
        "Make exactly one member of the target set writable. The task retries by itself.",
        Branch.RETRIES,
    ),
    Code(
        "MR-5004",
        "the target has reached a limit",
        "max_connections or the account's own limit is reached, or the server has no memory or threads left.",
        "Raise the limit or lower `lanes`. The task retries by itself.",
        Branch.RETRIES,
    ),
    Code(
        "MR-5005",
        "a target transaction could not get a lock",
        "A deadlock or a lock wait timeout occurred: another client writes the same rows, on this server or on another"
        " member of the group.",
        "Nothing to do: the task repeats the target transaction. If the error persists, find the other client.",
        Branch.RETRIES,
    ),
    Code(
        "MR-5006",
        "the target's disk is full",
        "The server can't store more rows.",
        "Free disk space on the target. The task retries by itself.",
        Branch.RETRIES,
    ),
    Code(
        "MR-5007",
        "the account has too few privileges",
        "A privilege is missing: on the target for apply, on the source or the target for `millrace compare`.",
        "GRANT what the message names. `millrace grants print SET` prints all that apply needs: on the replicated databases,"
        " on `millrace`, and PROCESS, REPLICATION CLIENT (MariaDB: PROCESS, SLAVE MONITOR) on *.*. A comparison needs SELECT"
        " on both sides.",
        Branch.OPERATOR,
    ),
    Code(
        "MR-5008",
        "the value of a field of the task document can't be used",
        "The value does not fit the topic, for example a GTID set of MariaDB for a topic of MySQL.",
        "Change the field that the message names (`millrace task create -f FILE --replace`).",
        Branch.OPERATOR,
    ),
    Code(
        "MR-5009",
        "the target's TLS does not match the set document",
        "The server offers no TLS, its certificate is not signed by the CA of the document or was issued for another host"
        " name, or the CA file can't be read on this host.",
        "Set `tls` and `tls_ca` in the set document to match the server (`millrace set create -f FILE --replace`), or"
        " change the server's certificate; then `millrace task resume TASK`.",
        Branch.OPERATOR,
    ),
    Code(
        "MR-5010",
        "a target row differs from the source",
        "The row to change or delete is missing, or the row to insert already exists. Another client wrote to the target,"
        " or the task started at the wrong position.",
        "`millrace conflict show TASK N` prints the change and the target's row. Correct the row, or leave the change out"
        " with `millrace conflict discard TASK N`, or set `conflict: overwrite` or `conflict: skip` for the task. If the table"
        " is wrong as a whole, `millrace task load TASK --tables DATABASE.TABLE` copies it again. Then"
        " `millrace task resume TASK`.",
        Branch.OPERATOR,
    ),
    Code(
        "MR-5011",
        "the target refuses a value",
        "The target's column is narrower than the source's, or a constraint of the target forbids the value.",
        "Make the target's table equal to the source's, then `millrace task resume TASK`.",
        Branch.OPERATOR,
    ),
    Code(
        "MR-5012",
        "a table is missing on the target",
        "The topic has rows of a table that the target does not have.",
        "`millrace task load TASK --tables DB.TABLE` creates the table as on the source and copies its rows. Or create it as it"
        " was at that position. Then `millrace task resume TASK`. A new task can also start before the CREATE TABLE.",
        Branch.OPERATOR,
    ),
    Code(
        "MR-5013",
        "a column is missing on the target",
        "The topic has a column that the target's table does not have.",
        "Add the column to the target's table, then `millrace task resume TASK`.",
        Branch.OPERATOR,
    ),
    Code(
        "MR-5014",
        "a row is larger than the target accepts",
        "The statement for one row exceeds the target's max_allowed_packet.",
        "SET GLOBAL max_allowed_packet on the target to at least the size in the message, then `millrace task resume"
        " TASK`.",
        Branch.OPERATOR,
    ),
    Code(
        "MR-5015",
        "the target's table is not transactional",
        "Its engine (MyISAM, Aria, MEMORY, CSV, …) can't roll back. After a deadlock or a crash, rows would be written"
        " again, and duplicated unless a key forbids it.",
        "ALTER TABLE … ENGINE=InnoDB on the target, then `millrace task resume TASK`.",
        Branch.OPERATOR,
    ),
    Code(
        "MR-5016",
        "the primary of the target set can't be determined safely",
        "One member is writable, but at least half of the members do not answer, or a member replicates from a server that"
        " does not answer. The writable member may be a former primary behind a network partition, and rows written to it"
        " would be lost.",
        "Start the members that the message names, or make them reachable from the driver's machine. The task retries by"
        " itself. If such a member is gone forever, make sure that it can't return as a primary and remove it from the set"
        " document (`millrace set create -f FILE --replace`). In a set of two members, both must answer when a run starts.",
        Branch.RETRIES,
    ),
    Code(
        "MR-5017",
        "the target generates another value than the source",
        "A generated column is part of the key that identifies rows, and the target's expression gives another value than"
        " the record has. Or the expression of a stored column depends on the session: on the time zone of a TIMESTAMP, on"
        " lc_time_names or on sql_mode. Or it depends on the type of a value inside MySQL's JSON that no statement can"
        " write: a TIMESTAMP, a BIT, a BINARY or a BLOB.",
        "Make the column a plain one on the target (`ALTER TABLE … MODIFY`), or give it the source's expression if it has"
        " another. Then `millrace task resume TASK`: it writes the record's value into a plain column.",
        Branch.OPERATOR,
    ),
    Code(
        "MR-5018",
        "triggers on the target fire for applied rows",
        "The topic already contains the rows that the source's triggers wrote. A trigger on the target writes again for"
        " each applied row. The task continues, and the target may differ from the source.",
        "DROP TRIGGER on the target, or keep it if its effect is wanted. Then `millrace task pause TASK` and `millrace task"
        " resume TASK`, because the task reads the triggers only when it starts.",
        Branch.RETRIES,
    ),
    Code(
        "MR-5019",
        "a statement would change more than one row",
        "No unique key of the target's table identifies the row: its columns are all generated and no key covers them, or"
        " the key that the task found at its start no longer exists. No row was changed.",
        "Give the table the source's primary key, then `millrace task resume TASK`.",
        Branch.OPERATOR,
    ),
    Code(
        "MR-5020",
        "a newer run of the task writes to the target",
        "The fence row on the target names another run or a greater epoch.",
        "Nothing to do: this run ends and asks ZooKeeper which worker owns the task.",
        Branch.FENCED,
    ),
    Code(
        "MR-5021",
        "another process changed the task's progress on the target",
        "The low-water mark differs from the one that this run stored.",
        "Nothing to do: the task restarts from the progress stored on the target.",
        Branch.RETRIES,
    ),
    Code(
        "MR-5022",
        "the progress on the target does not belong to this task",
        "Another version or an operator changed the progress tables, or a task with this name applied another topic"
        " before.",
        "If the document names another topic, set `topic` back: a task with another name can apply that topic. Otherwise"
        " upgrade, or restore the database `millrace` of the target.",
        Branch.OPERATOR,
    ),
    Code(
        "MR-5023",
        "the target's table was altered while the task ran",
        "Rows seem to differ, and the table has other columns or keys than when the task read them. Changes that share a"
        " key unknown to the task may have been written in another order.",
        "Nothing to do: the target transaction was rolled back. The task reads the tables again and restarts.",
        Branch.RETRIES,
    ),
    Code(
        "MR-5024",
        "a table can't be applied in safe mode",
        "Safe mode replaces rows. In this table that would lose more than the row of the record, for the reason in the"
        " message: it has no usable key, or the target has columns, a trigger or a history that the records do not have."
        " No row of the batch was written.",
        "Remove the cause that the message names on the target until safe mode has ended. Or add the table to `exclude` in"
        " the task document (`millrace task create -f FILE --replace`) and load it again later. Or load the target at one"
        " GTID set and start there without `safe_mode`. Then `millrace task resume TASK`.",
        Branch.OPERATOR,
    ),
    Code(
        "MR-5025",
        "a cascade that the source did not log can't be repeated in safe mode",
        "The source changed child rows by a foreign key and did not log them (MariaDB, MySQL before 9.6). In safe mode the"
        " target may have rows from before and after that change. The message names the table and the constraint: a"
        " deletion cascades from child rows to further rows, a key changes that rows follow, or a row of a later state"
        " refers to the row to delete. Repeating the change could remove or keep wrong rows.",
        "`millrace task load TASK --tables DATABASE.TABLE` with the table in the message loads it again with its child"
        " tables, in one snapshot. Then `millrace task resume TASK`. Or add all tables of the constraint to `exclude` in"
        " the task document (`millrace task create -f FILE --replace`). Do not drop the constraint on the target: then"
        " the child rows do not follow at all.",
        Branch.OPERATOR,
    ),
    Code(
        "MR-5026",
        "readers can't wait for a GTID set on the target",
        "The account may not make the procedure `millrace.wait_for_gtid`, or a session that uses an earlier version of it"
        " held it while the task started. A warning in the log: the task applies without it.",
        "GRANT CREATE ROUTINE, ALTER ROUTINE, EXECUTE ON millrace.* to the account, unless it has ALL PRIVILEGES there. Then"
        " `millrace task pause TASK` and `millrace task resume TASK`.",
        Branch.RETRIES,
    ),
    Code(
        "MR-5028",
        "MySQL has no sequences",
        "The topic has a sequence of MariaDB, and the target is MySQL. Rows that got their values from it have them.",
        "Add the sequence to `exclude` in the document of the apply task, give it to `millrace task create -f FILE"
        " --replace`, then run `millrace task resume TASK`.",
        Branch.OPERATOR,
    ),
    Code(
        "MR-5029",
        "a change of a system-versioned table can't be repeated",
        "The target must be MariaDB 10.11 or later and allow SET timestamp (`secure_timestamp`). The source changed a stored"
        " row in a way that no SQL statement repeats, such as in its history.",
        "Change the setting that the message names. Or add the table to `exclude` in the document of the apply task, give"
        " it to `millrace task create -f FILE --replace`. Then run `millrace task resume TASK`.",
        Branch.OPERATOR,
    ),
    Code(
        "MR-5030",
        "records are missing in the topic",
        "`seq` has a gap: retention removed records before they were applied, or another program wrote to the topic.",
        "Run `millrace topic verify TOPIC`. If records are missing, load the target again and apply with a task of another"
        " name, with `start` at the GTID set of the load.",
        Branch.OPERATOR,
    ),
    Code(
        "MR-5031",
        "the topic does not reach back to the task's start",
        "Retention removed the first records that the task needs, or the topic's capture task started later.",
        "Load a target at a GTID set that the topic still contains, and start the task there.",
        Branch.OPERATOR,
    ),
    Code(
        "MR-5032",
        "a record can't be read",
        "The value at the offset in the message is truncated, does not match its schema, was not written by Millrace, or"
        " was written by a newer version.",
        "Run `millrace topic verify TOPIC` to see the record. Upgrade apply, or find the program that wrote it.",
        Branch.OPERATOR,
    ),
    Code(
        "MR-5033",
        "the schema of a record is unknown",
        "Neither the topic since the task's position, nor the target, nor the registry has the schema with this id; or the"
        " registry does not answer.",
        "Set `registry` in the task document to the registry that the capture task uses, check that it runs, then"
        " `millrace task resume TASK`.",
        Branch.EITHER,
    ),
    Code(
        "MR-5034",
        "records of an older owner follow those of a newer owner",
        "The epoch of the topic's control records decreases: a stale process wrote to the topic.",
        "Run `millrace topic verify TOPIC` and report the result.",
        Branch.OPERATOR,
    ),
    Code(
        "MR-5035",
        "the topic is not the one that the task has applied",
        "The topic was deleted and created again, the document names other brokers, or the broker lost the end of the"
        " topic. The topic id differs from the one in the target's progress, the topic ends before the task's offset, or a"
        " record has a lower seq or a smaller GTID set than the task has applied. No such record was applied.",
        "If the document names the wrong brokers, correct `kafka` and resume the task. If capture has adopted the new topic"
        ", `millrace task resume TASK` follows into it. If the topic is new otherwise, load the"
        " target again, delete this task, and create one with another name and `start` at the GTID set of the load. The"
        " topic must reach back to that GTID set.",
        Branch.OPERATOR,
    ),
    Code(
        "MR-5036",
        "the schema id of a row belongs to another table",
        "The schema that the task knows for the id describes another table, or a table of another set. The registry was"
        " rebuilt and assigned the id to another schema, or the document names another registry than the capture task"
        " uses. No record of the batch was applied.",
        "Correct `registry` in the task document, or restore the registry's contents, then `millrace task resume TASK`."
        " Without the old contents these rows can't be read: load the target again, and apply with a task of another"
        " name, with `start` at the GTID set of the load.",
        Branch.OPERATOR,
    ),
    Code(
        "MR-5037",
        "the source does not have the task's start",
        "`start` names source transactions that the primary of the source set has not executed. Rows that it commits under"
        " these GTIDs later would be skipped. The task was not created.",
        "Correct `start`: take the GTID set of the load. If the load came from a server that has these transactions, the"
        " primary has lost them: load the target again.",
        Branch.OPERATOR,
    ),
    Code(
        "MR-5038",
        "the topic has not reached the task's start yet",
        "The task skips all rows of the source transactions in `start`, and the topic does not have all of these yet. This is"
        " usual while capture lags behind the load. If the source does not have them either, the task skips rows that the"
        " source commits later. The task continues.",
        "Nothing to do while capture lags. Otherwise compare `start` with the GTID set of the source's primary. If `start` is"
        " ahead of it, delete the task and create one with another name and the GTID set of the load.",
        Branch.RETRIES,
    ),
    Code(
        "MR-5039",
        "two labels of an ENUM or SET are equal under its collation",
        "Servers take such labels without strict mode. A row is written by its label, and the target would store the first"
        " of the equal ones: another value than the source's.",
        "Give the column on the target the same labels with a binary collation, such as `ALTER TABLE t MODIFY e"
        " ENUM('a','A') COLLATE utf8mb4_bin`, then run `millrace task resume TASK`. The column's own comparisons are exact then. Or"
        " exclude the table.",
        Branch.OPERATOR,
    ),
    Code(
        "MR-5040",
        "the outcome of a DDL statement is unknown",
        "The run ended around the statement, perhaps with a failover of the target, and the tables do not show whether it was"
        " executed. Or an operator has ended it (`millrace apply-ddl TASK --seq N --end`). The message has their states before it and now.",
        "Check the tables in the statement, then run `millrace apply-ddl TASK --seq N --done` or `--execute`, and `millrace"
        " task resume TASK`.",
        Branch.OPERATOR,
    ),
    Code(
        "MR-5041",
        "the target refuses a DDL statement",
        "The target's structure differs from the source's, or the target's flavour does not support the statement.",
        "Execute the intended statement manually, then `millrace apply-ddl TASK --seq N --done`; or fix the target and"
        " `millrace task resume TASK`.",
        Branch.OPERATOR,
    ),
    Code(
        "MR-5042",
        "a statement is not supported",
        "Apply neither executes nor skips this statement, its effect is not known exactly, or it names a table that the"
        " capture task or the apply task leaves out. The message has the reason. A gap is no statement: an operator let the"
        " capture task leave out source transactions, and its fix is another one.",
        "Execute the intended statement manually, then `millrace apply-ddl TASK --seq N --done`. Or let the task execute it"
        " unchanged: `millrace apply-ddl TASK --seq N --execute`. Then `millrace task resume TASK`.",
        Branch.OPERATOR,
    ),
    Code(
        "MR-5043",
        "no DDL statement waits for a decision",
        "The task is not an apply task, or no statement with this seq is blocked. With `--end`: none runs.",
        "Take the seq from `millrace status`. A statement that is not blocked needs no decision.",
        Branch.OPERATOR,
    ),
    Code(
        "MR-5050",
        "a Spark job failed",
        "A worker process or executor ended, or Spark could not run the job.",
        "Nothing to do: the task restarts from the progress stored on the target. If the error repeats, read the driver's"
        " log.",
        Branch.RETRIES,
    ),
    Code(
        "MR-5051",
        "Spark can't be started",
        "Java, PySpark or the Kafka connector is missing, the JVM was killed during its start, or the Spark master does not"
        " exist.",
        "Run `make setup`, or `python -m deploy.servers.fetch spark` if pip installed Millrace. MILLRACE_HOME must contain"
        " jars/spark.",
        Branch.OPERATOR,
    ),
    Code(
        "MR-5052",
        "the topic can't be read",
        "No broker answers at the address in the task document, the account may not read the topic, or the records needed"
        " no longer exist.",
        "Check that a broker answers at the address in the message, from the driver's machine. Correct `kafka` in the"
        " document if it is wrong. The task retries by itself.",
        Branch.RETRIES,
    ),
    Code(
        "MR-5053",
        "Spark's JVM has ended",
        "The JVM was killed or ran out of memory. An apply driver can't continue without it and exits with status 75.",
        "Restart the driver, as a service manager does by itself. Its tasks resume from the progress stored on the target."
        " If the error repeats, give Spark more memory with `--conf spark.driver.memory=4g`.",
        Branch.RETRIES,
    ),
    Code(
        "MR-5054",
        "the topic does not exist",
        "The brokers in the task document have no topic with this name: the capture task has not created it yet, the name"
        " is wrong, or the topic was deleted.",
        "Start the capture task, or correct `topic` or `kafka` in the document. The task retries by itself.",
        Branch.RETRIES,
    ),
    Code(
        "MR-5055",
        "Spark tasks planned the same records differently",
        "Several Spark tasks share a backlog of this topic, and each computes the lane of every row. They computed"
        " different lanes from equal inputs. This is a defect of Millrace. Each row that was written is right, and the"
        " progress has not moved.",
        "Report it with the message. Set `lanes: 1` in the task document until it is corrected: one Spark task then"
        " applies all rows in order. Then run `millrace task resume TASK`.",
        Branch.OPERATOR,
    ),
    Code(
        "MR-5060",
        "`millrace compare` finds no single apply task",
        "The command names a capture task, and not exactly one apply task reads its topic.",
        "Name an apply task from `millrace task list`.",
        Branch.OPERATOR,
    ),
    Code(
        "MR-5061",
        "there is no such conflict",
        "The task is not an apply task, has not run on this target, or has no stored conflict with this seq: the conflict"
        " was replayed or discarded, or the task has resumed and tried the change that blocked it again.",
        "`millrace conflict list TASK` shows the conflicts of a task.",
        Branch.OPERATOR,
    ),
    Code(
        "MR-5062",
        "the task has not passed the change yet",
        "A replay needs all earlier changes on the target. The task is blocked at this change or before it, or it has not"
        " stored its progress yet.",
        "If the task is blocked at this change, correct the row on the target; then `millrace task resume TASK` tries the"
        " change again. Otherwise resume the task and repeat the replay when it has applied the batch.",
        Branch.OPERATOR,
    ),
    Code(
        "MR-5063",
        "the task must be stopped before a change is left out",
        "The change blocked the task, and the task runs again. It may already have applied the change.",
        "If the task is blocked at the change again, repeat the command. Otherwise `millrace task pause TASK` first.",
        Branch.OPERATOR,
    ),
    Code(
        "MR-5070",
        "the new topic misses source transactions that the target needs",
        "The topic was deleted, and an operator let the capture task continue in a new one (`millrace unsafe adopt-topic`)."
        " The source transactions in the message were only in the old topic, and the task had not applied them.",
        "Repair the target (`millrace compare TASK --now` shows the differences), or load it again. Then `millrace unsafe follow-topic"
        " TASK --reason MR-5070` lets the task continue after the gap; --dry-run shows what is missing.",
        Branch.OPERATOR,
    ),
    Code(
        "MR-5071",
        "it is not known what the target has of the old topic",
        "The topic was deleted and adopted, and the task stopped inside a source transaction, or before its start. Its rows"
        " come again in the new topic.",
        "Compare the target with the source: `millrace compare TASK --now`. Then `millrace unsafe follow-topic TASK --reason MR-5071` lets the task"
        " continue: it applies the rows that come again, and stops at each that does not fit (MR-5010).",
        Branch.OPERATOR,
    ),
    Code(
        "MR-5072",
        "the topic was created again while the task read it",
        "The topic has another id than at the start of the run.",
        "Nothing to do: the next run compares the new topic with the target's progress, and follows if nothing is missing.",
        Branch.RETRIES,
    ),
    Code(
        "MR-5073",
        "there is no new topic to follow into",
        "The task is not an apply task, its topic is the one that its progress names, or no operator let the capture task"
        " adopt it (`millrace unsafe adopt-topic`), or the first records of the topic are gone.",
        "`millrace status TASK` shows why the task stops. A task that can continue needs no decision: `millrace task resume"
        " TASK`. In a topic that was not adopted, only a new load helps (MR-5035).",
        Branch.OPERATOR,
    ),
)
