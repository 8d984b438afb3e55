"""4xxx: coordination and documents."""

from millrace.codes.code import Code

CODES: tuple[Code, ...] = (
    Code(
        "MR-4001",
        "ZooKeeper can't be reached",
        "No server of the ensemble answers, it turns requests away, or the session to it is broken.",
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
        "Give each worker a name of its own (--name); one that died frees its name after the session timeout.",
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
        "MR-4014",
        "the worker's machine has run out of something",
        "The system refused memory, a thread, a file descriptor or room on a disk; the error that said so is given.",
        "Nothing to do at first: the task goes on by itself. If it lasts, look at what else runs there, and at the limits of"
        " the worker's process (`ulimit -a`).",
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
        "Set the variable or put the file in place on every worker, or refer to another one (`millrace set create -f FILE"
        " --replace`), then `millrace task resume NAME`; only references are kept in ZooKeeper.",
    ),
    Code(
        "MR-4107",
        "a document has an unknown format version",
        "It was written by a newer Millrace.",
        "Upgrade this program, or create the document again from its file.",
    ),
    Code(
        "MR-4108",
        "two apply tasks would write the same rows",
        "Another task applies the same topic to the same target set: each would take the other's rows for conflicts.",
        "Name another target or topic, or delete the other task first.",
    ),
    Code(
        "MR-4109",
        "a topic would be applied to the set that it comes from",
        "The target set of the apply task is the one that a capture task publishes to this topic: a loop.",
        "Name another target set, or another topic.",
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
        "MILLRACE_ZOOKEEPER is not set, or it is no list of host:port.",
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
