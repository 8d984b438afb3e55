"""418x: decisions of an operator about a capture task (``millrace unsafe``)."""

from millrace.codes.code import Branch, Code

CODES: tuple[Code, ...] = (
    Code(
        "MR-4180",
        "a decision waits for the task already",
        "An operator decided with `millrace unsafe`, and no worker has executed it yet.",
        "If the task is paused: `millrace task resume TASK`. To decide otherwise: `millrace unsafe withdraw TASK` first.",
        Branch.OPERATOR,
    ),
    Code(
        "MR-4181",
        "no decision waits for the task",
        "A worker has executed it, another operator withdrew it, or the task document was replaced meanwhile.",
        "Nothing to do: `millrace status TASK` shows the task. `millrace topic verify TOPIC` names an executed decision.",
        Branch.OPERATOR,
    ),
    Code(
        "MR-4182",
        "the task is not stopped",
        "`millrace unsafe` decides only about a task that is paused or blocked and has no owner: otherwise its progress"
        " still moves.",
        "Nothing: there is nothing to decide about a task that runs or retries, and it loses nothing. Only if it retries"
        " without success and must continue without a change: `millrace task pause TASK`, then repeat the command.",
        Branch.OPERATOR,
    ),
    Code(
        "MR-4183",
        "the task has no progress to decide on",
        "The task is not a capture task, or its topic does not exist, has no record, or ends with records that can't be"
        " read.",
        "If the task is new, or only paused, there is nothing to decide: `millrace task resume TASK` loses nothing. If the"
        " topic has lost its records, use `millrace unsafe adopt-topic TASK --reason MR-4183`. If its end can't be read, see the code in the"
        " message. Otherwise name a capture task.",
        Branch.OPERATOR,
    ),
    Code(
        "MR-4184",
        "the source transaction can't be skipped",
        "It is delivered already, the primary has not executed it, it is not the next one of its MariaDB domain, or another"
        " source transaction is published in part. Skipping it would also skip other transactions, or one that is committed"
        " later.",
        "Take the GTID from the message of the blocked task. To leave out several transactions: `millrace unsafe"
        " reset-position TASK --gtid GTID-SET --reason MR-4184`.",
        Branch.OPERATOR,
    ),
    Code(
        "MR-4185",
        "the position can't be reset to this GTID set",
        "The GTID set does not contain everything that the topic has (rows would come twice), the primary has not executed"
        " all of it (later transactions would be missing), no member can be read from there, or it is too large.",
        "Use a GTID set that contains the one under `now` (`millrace status TASK`) and that the primary has executed, such"
        " as `SELECT @@GLOBAL.gtid_executed` (MariaDB: `@@GLOBAL.gtid_binlog_pos`).",
        Branch.OPERATOR,
    ),
    Code(
        "MR-4186",
        "the topic can't be adopted",
        "The topic still has records, the progress is unknown or another one than the task's status reports, or no whole"
        " source transaction was published.",
        "If the topic has records and they can be read, `millrace task resume TASK` continues after them. If they can't,"
        " let all apply tasks and subscribers read what they can, delete the topic, and repeat the command. If the status"
        " has no progress, give --gtid and --seq of the last `resolved` record that a subscriber has.",
        Branch.OPERATOR,
    ),
    Code(
        "MR-4187",
        "the decision was not confirmed",
        "The answer was not yes, or no reason was given. Nothing has changed.",
        "Read what is lost with --dry-run. Then repeat the command with --reason and answer yes, or give --yes.",
        Branch.OPERATOR,
    ),
)
