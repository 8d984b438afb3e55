"""4xxx: coordination and documents."""

from millrace.codes.code import Branch, Code

CODES: tuple[Code, ...] = (
    Code(
        "MR-4001",
        "ZooKeeper can't be reached",
        "No server of the ensemble answers, the ensemble rejects requests, or the session is broken.",
        "Check MILLRACE_ZOOKEEPER and the ensemble. Running tasks continue and reconnect by themselves.",
        Branch.RETRIES,
    ),
    Code(
        "MR-4002",
        "the outcome of a change in ZooKeeper is unknown",
        "The connection was lost after the change was sent and before the answer arrived.",
        "Nothing to do: the process reads the state again and repeats the step.",
        Branch.RETRIES,
    ),
    Code(
        "MR-4003",
        "the lease is lost",
        "The session ended, or another worker owns the task now.",
        "Nothing to do: this worker stops the task and asks ZooKeeper which worker owns it.",
        Branch.FENCED,
    ),
    Code(
        "MR-4004",
        "another worker holds the lease",
        "The task moved, but its former worker has not released it and its session has not ended.",
        "Wait for the session timeout. If the error persists, stop the worker that the message names.",
        Branch.RETRIES,
    ),
    Code(
        "MR-4005",
        "no new epoch is available",
        "The generation, the leader epoch or the counter of the ensemble exceeds its share of an epoch's 63 bits.",
        "Report it. Set a new cluster name (MILLRACE_CLUSTER) and create the tasks again.",
        Branch.OPERATOR,
    ),
    Code(
        "MR-4006",
        "a worker is fenced repeatedly although it holds the lease",
        "The topic or target holds a greater epoch than this ensemble assigns: the ensemble was rebuilt or restored, or"
        " another cluster writes there.",
        "Make sure that no other cluster runs the task, then `millrace cluster raise-generation`"
        " and `millrace task resume TASK`.",
        Branch.OPERATOR,
    ),
    Code(
        "MR-4007",
        "another command changed the same set or task",
        "Two commands changed the same ZooKeeper node at the same time.",
        "Check the document (`millrace task show TASK`) and repeat the command.",
        Branch.RETRIES,
    ),
    Code(
        "MR-4008",
        "this scheduler is no longer the leader",
        "Its session ended while it was assigning tasks. Another scheduler leads.",
        "Nothing to do: this scheduler waits as a standby.",
        Branch.FENCED,
    ),
    Code(
        "MR-4009",
        "the worker's name is taken",
        "A worker with this name is registered: it still runs, or it died and its session has not ended.",
        "Give each worker its own name (--name). The name of a dead worker becomes free after the session timeout.",
        Branch.RETRIES,
    ),
    Code(
        "MR-4010",
        "the runner of a task ended by itself",
        "The task's thread returned although the task was not asked to stop.",
        "Nothing to do: the worker starts the task again. If the error repeats, report it with the worker's log.",
        Branch.RETRIES,
    ),
    Code(
        "MR-4011",
        "a ZooKeeper node can't be read",
        "A newer Millrace or another program wrote the node, or its content is incomplete.",
        "Upgrade this program, or create the set or task again from its file.",
        Branch.OPERATOR,
    ),
    Code(
        "MR-4012",
        "ZooKeeper refuses the request",
        "The ensemble answered with an error that does not concern the connection.",
        "Read the error in the message. Check the access rights of the tree and the size of the document.",
        Branch.OPERATOR,
    ),
    Code(
        "MR-4013",
        "a task does not stop",
        "The task was asked to stop and has not ended in the time allowed.",
        "Nothing to do: the worker keeps the lease until the task ends. If it does not end, stop the worker's process.",
        Branch.EITHER,
    ),
    Code(
        "MR-4014",
        "the worker's machine has run out of a resource",
        "The system refused memory, a thread, a file descriptor or disk space. The message repeats its error.",
        "Nothing to do at first: the task retries by itself. If the error persists, check the other processes on the"
        " machine and the limits of the worker's process (`ulimit -a`).",
        Branch.RETRIES,
    ),
    Code(
        "MR-4015",
        "processes end under a task",
        "The worker processes that ran this task ended three times in ten minutes, and the task reported no error. They"
        " crashed, or the system (for their memory use) or an operator killed them. The scheduler hands the task to no"
        " other worker.",
        "Find out why the named workers ended (`journalctl -k`, their logs). Give them more memory, or exclude the table in"
        " the task document. Then `millrace task resume TASK`. MILLRACE_KILLS_MAX changes the number of ends.",
        Branch.OPERATOR,
    ),
    Code(
        "MR-4016",
        "a task that should move rows does not",
        "Its worker is silent, its thread hangs, replication has stopped on the member that it reads, Kafka accepts no"
        " record, or one long statement or lock holds up the target. The status names which.",
        "A member: start its replication threads, or `millrace replica drain SET HOST:PORT`. The target: SHOW PROCESSLIST."
        " The worker: read its log, then `millrace task pause TASK` and `millrace task resume TASK`.",
        Branch.RETRIES,
    ),
    Code(
        "MR-4101",
        "a document is refused",
        "Fields are missing, unknown or wrong. The message names each field, its value and the values allowed.",
        "Correct the fields that the message names and repeat the command.",
        Branch.OPERATOR,
    ),
    Code(
        "MR-4102",
        "a document is not YAML",
        "The text can't be parsed, or it contains aliases, tags or a duplicate key.",
        "Correct the line that the message names. Use plain `key: value` lines.",
        Branch.OPERATOR,
    ),
    Code(
        "MR-4103",
        "a document with this name exists",
        "The existing document has other contents.",
        "Compare with `millrace task show TASK` (or `millrace set show SET`). Add --replace to replace it.",
        Branch.OPERATOR,
    ),
    Code(
        "MR-4104",
        "the set or task does not exist",
        "ZooKeeper holds no document with this name in this cluster.",
        "List them with `millrace set list` and `millrace task list`, and check MILLRACE_CLUSTER.",
        Branch.EITHER,
    ),
    Code(
        "MR-4105",
        "two capture tasks name the same topic",
        "A topic has exactly one capture task, which orders and numbers its records.",
        "Name another topic, or delete the other task first.",
        Branch.OPERATOR,
    ),
    Code(
        "MR-4106",
        "a secret can't be read",
        "The environment variable or file that a document refers to is missing, empty or not readable on this host.",
        "Set the variable or create the file on every worker, or change the reference (`millrace set create -f FILE"
        " --replace`); then `millrace task resume TASK`. ZooKeeper holds only the reference.",
        Branch.OPERATOR,
    ),
    Code(
        "MR-4107",
        "a document has an unknown format version",
        "A newer Millrace wrote the document.",
        "Upgrade this program, or create the document again from its file.",
        Branch.OPERATOR,
    ),
    Code(
        "MR-4108",
        "two apply tasks would write the same rows",
        "Another task applies the same topic to the same target set. Each would report the other's rows as conflicts.",
        "Name another target or topic, or delete the other task first.",
        Branch.OPERATOR,
    ),
    Code(
        "MR-4109",
        "an apply task would write to its own source",
        "A capture task publishes the target set to this topic, so every change would loop.",
        "Name another target set, or another topic.",
        Branch.OPERATOR,
    ),
    Code(
        "MR-4110",
        "the set has no such member",
        "The command names a server that is not in the set document.",
        "Use an address as `millrace replica list SET` prints it.",
        Branch.OPERATOR,
    ),
    Code(
        "MR-4120",
        "a worker's label is refused",
        "A label of `millrace worker` or `millrace apply` is not NAME=VALUE.",
        "Start the process with labels such as `--label zone=a`.",
        Branch.OPERATOR,
    ),
    Code(
        "MR-4121",
        "the worker does not exist",
        "No worker or apply driver with this name is registered in this cluster.",
        "List them with `millrace worker list`, and check MILLRACE_CLUSTER.",
        Branch.OPERATOR,
    ),
    Code(
        "MR-4122",
        "the last worker of its kind can't be drained",
        "No other worker of its kind takes tasks, so the tasks could not move.",
        "Start another worker first, or undrain one with `millrace worker undrain WORKER`. To stop the tasks, pause them.",
        Branch.OPERATOR,
    ),
    Code(
        "MR-4123",
        "a task can't move to this worker",
        "The worker runs other kinds of tasks, does not have a label that the task asks for, is drained, or is full.",
        "Choose another worker of `millrace worker list`, or remove the reason that the message names.",
        Branch.OPERATOR,
    ),
    Code(
        "MR-4124",
        "a move was not complete in time",
        "The scheduler does not run, the receiver registered only just now, or a task does not stop on its worker. The"
        " wish is stored and stays in force.",
        "Run `millrace worker list` and `millrace status`: they name what the tasks wait for.",
        Branch.RETRIES,
    ),
    Code(
        "MR-4125",
        "the limit of ended processes is malformed",
        "MILLRACE_KILLS_MAX is not a whole number.",
        "Set it to a whole number, 0 to hold no task, or unset it for 3.",
        Branch.OPERATOR,
    ),
    Code(
        "MR-4140",
        "a set is in use",
        "The tasks that the message names capture from this set or apply to it.",
        "Delete these tasks first (`millrace task delete TASK`), or give them another set.",
        Branch.OPERATOR,
    ),
    Code(
        "MR-4141",
        "documents are refused",
        "The message names each problem: a file that can't be read, a document with wrong fields or given twice, or one that"
        " does not fit to the others.",
        "Correct the files that the message names, then run the command again. Nothing was written.",
        Branch.OPERATOR,
    ),
    Code(
        "MR-4142",
        "the history has no such document",
        "The revision was never written, its document was deleted with it, or it is older than the revisions that are kept.",
        "List the revisions with `millrace task history TASK` or `millrace set history SET`.",
        Branch.OPERATOR,
    ),
    Code(
        "MR-4143",
        "the documents can't be exported",
        "The folder has files already, or this user may not write there.",
        "Name a folder that does not exist, or an empty one. `millrace export -` prints the documents instead.",
        Branch.OPERATOR,
    ),
    Code(
        "MR-4145",
        "a change is too large for ZooKeeper",
        "A request to ZooKeeper has at most 1 MB. All documents of a plan, with the former ones, are one request. So is the"
        " report of a task, whose GTID set can have very many intervals.",
        "Split the directory and execute one part after the other, sets first. A single document: make it shorter with"
        " patterns (`shop.*`). A report: the status is without its largest fields; find what makes the gaps in the GTID set.",
        Branch.OPERATOR,
    ),
    Code(
        "MR-4201",
        "the wait timed out",
        "The task did not reach the primary's position in the time given.",
        "Run `millrace status` to see what the task waits for, then wait again. If the message names a replica that has stopped"
        " replicating, start its replication, or pause and resume the capture task to read from another member.",
        Branch.RETRIES,
    ),
    Code(
        "MR-4202",
        "the task waits for an operator",
        "The task, or the capture task that feeds it, is blocked or paused and can't reach the position.",
        "Fix the cause that the message names, then `millrace task resume TASK`.",
        Branch.OPERATOR,
    ),
    Code(
        "MR-4203",
        "the source of an apply task is unknown",
        "No capture task of this cluster writes the topic, so Millrace knows no primary to compare with.",
        "Create the capture task, or run the command in the cluster that has it.",
        Branch.OPERATOR,
    ),
    Code(
        "MR-4204",
        "the set has no single primary",
        "None of the members that answer is a primary, or more than one is.",
        "Check the members in `millrace set show SET` and that the primary is running.",
        Branch.RETRIES,
    ),
    Code(
        "MR-4205",
        "no ZooKeeper ensemble was named",
        "MILLRACE_ZOOKEEPER is not set, or it is not a list of host:port.",
        "export MILLRACE_ZOOKEEPER=host:port[,host:port]; commands find the local stack of `millrace up` by themselves.",
        Branch.OPERATOR,
    ),
    Code(
        "MR-4206",
        "a file can't be read",
        "The file given with -f does not exist or is not readable text.",
        "Check the path. `-f -` reads standard input.",
        Branch.OPERATOR,
    ),
    Code(
        "MR-4207",
        "the error code does not exist",
        "The catalogue of this version does not contain it.",
        "List all codes with `millrace explain`.",
        Branch.OPERATOR,
    ),
    Code(
        "MR-4208",
        "the bundle can't be written",
        "The file exists, or its folder does not, or this user must not write there.",
        "Name a new file in a folder of yours.",
        Branch.OPERATOR,
    ),
    Code(
        "MR-4240",
        "a snapshot can't be taken",
        "A table does not exist, is not published by the task, or has no primary key by which a subscriber recognizes a"
        " row. Or the condition of --where is no SQL for the table.",
        "Name tables that the task publishes and that have a primary key, or correct the condition. For a table without a"
        " primary key, add one: `ALTER TABLE … ADD id BIGINT UNSIGNED AUTO_INCREMENT PRIMARY KEY`.",
        Branch.OPERATOR,
    ),
    Code(
        "MR-4241",
        "there is no such snapshot",
        "No snapshot with this id runs or waits.",
        "`millrace task snapshot TASK --list` shows the snapshots that run and wait.",
        Branch.OPERATOR,
    ),
    Code(
        "MR-4242",
        "too many snapshots wait",
        "Snapshots of a task run one after the other, and only so many can wait.",
        "Wait until one has ended, or end one with --stop: `millrace task snapshot TASK --list` names them. One request can"
        " name many tables.",
        Branch.OPERATOR,
    ),
)
