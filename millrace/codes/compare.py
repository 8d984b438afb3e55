"""5120 to 5141: comparisons and repairs."""

from millrace.codes.code import Branch, Code

CODES: tuple[Code, ...] = (
    Code(
        "MR-5120",
        "a comparison waits too long for the target",
        "`millrace compare` has read rows of the source and waits until the task has applied them. The task is paused or"
        " blocked, or its lag is greater than the timeout.",
        "`millrace status TASK`. If it is paused or blocked, `millrace task resume TASK`. Then `millrace compare TASK --resume`, with"
        " a longer `--timeout` if the lag is large. `millrace compare TASK --now` compares without waiting, and then lists rows that are still on their way as differences.",
        Branch.RETRIES,
    ),
    Code(
        "MR-5121",
        "max_allowed_packet is too small for a comparison",
        "A server returns NULL for a row whose text is longer. A comparison would not see the row.",
        "SET GLOBAL max_allowed_packet to the value in the message or more on this server, and in its configuration.",
        Branch.OPERATOR,
    ),
    Code(
        "MR-5122",
        "a row could not be repaired",
        "The target refused the source's row, or has stored other values than those: a column has another type, or"
        " another row has a unique key of the row.",
        "Compare the definitions of the table on both sides. Then repair the row with the SQL that `millrace compare TASK` lists.",
        Branch.OPERATOR,
    ),
    Code(
        "MR-5123",
        "rows of this table are not repaired",
        "Writing a row would change more than this row: the target's table has a trigger, keeps its history, has a key"
        " WITHOUT OVERLAPS, or is a sequence. Or no key names its rows on both sides, and it has columns that the source"
        " does not have.",
        "Drop the trigger, or repair the rows with the SQL that `millrace compare TASK` lists.",
        Branch.OPERATOR,
    ),
    Code(
        "MR-5124",
        "there is no comparison to resume",
        "`--resume` continues the last comparison of a task, if it was interrupted.",
        "Run `millrace compare TASK` without `--resume`.",
        Branch.OPERATOR,
    ),
    Code(
        "MR-5125",
        "options of `millrace compare` exclude each other",
        "A comparison with `--now` does not wait for the task. So it can't know for certain which rows differ, repairs none,"
        " and is not stored.",
        "Leave out `--now`.",
        Branch.OPERATOR,
    ),
    Code(
        "MR-5126",
        "the task has not run on this target",
        "Its fence and progress are not there. Without them a comparison can't wait for the task.",
        "Check the target set of the task (`millrace task show TASK`), and start it. `millrace compare TASK --now` compares"
        " without waiting.",
        Branch.OPERATOR,
    ),
    Code(
        "MR-5127",
        "the repair was not confirmed",
        "`millrace compare TASK --repair` changes rows of the target. It asks first, and the answer was not yes.",
        "Run `millrace compare TASK` to see the differences; then repeat the command and answer yes, or give `--yes`.",
        Branch.OPERATOR,
    ),
    Code(
        "MR-5128",
        "the replica that a comparison reads is too late",
        "The target may have changes that this member of the source set does not have yet. The comparison waits until it"
        " has them, and the timeout has passed.",
        "Repeat the command with `--resume`: it chooses a member again, and the primary if no replica keeps up. Or give"
        " a longer `--timeout`. If the error persists, check the replication of the source's replicas.",
        Branch.RETRIES,
    ),
    Code(
        "MR-5129",
        "rows are not repaired, because the replica is too late",
        "A repair reads the source's rows while the task waits. The member of the source set that is read did not have all"
        " changes of the target within two seconds. The rows are left as they are.",
        "Run `millrace compare TASK --repair` again when the source's replicas are less late.",
        Branch.RETRIES,
    ),
    Code(
        "MR-5135",
        "a comparison beside a task fails",
        "`compare: {every_h: …}` in the document of the task compares source and target again and again. The comparison could"
        " not continue, for the reason in the message. The task applies its rows meanwhile.",
        "See the error in the message. The comparison continues by itself where it was.",
        Branch.RETRIES,
    ),
    Code(
        "MR-5136",
        "another comparison of the task runs",
        "Only one comparison of a task runs at a time: `millrace compare TASK`, or the one that `compare: {every_h: …}` in its"
        " document runs beside it. A session on the target holds the lock of the other one.",
        "Wait until it has ended (`millrace status TASK` shows the one beside the task), then repeat the command.",
        Branch.RETRIES,
    ),
)
