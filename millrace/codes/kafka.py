"""3xxx: Kafka. 30xx publisher, 35xx reading topics."""

from millrace.codes.code import Branch, Code

CODES: tuple[Code, ...] = (
    Code(
        "MR-3001",
        "no Kafka broker can be reached",
        "No broker answers, the partition or transaction coordinator has no leader yet, or fewer brokers are running than"
        " a new topic needs replicas.",
        "Check `kafka.bootstrap` of the task and that the brokers run. The task retries by itself.",
        Branch.RETRIES,
    ),
    Code(
        "MR-3002",
        "the outcome of a Kafka transaction is unknown",
        "The producer reported an error during a transaction.",
        "Nothing to do: the task reads the end of the topic and resumes after it. If the error repeats, read the broker's"
        " log.",
        Branch.RETRIES,
    ),
    Code(
        "MR-3003",
        "a newer producer took over the topic",
        "Another worker took over the topic, or this worker was suspended for longer than the transaction timeout.",
        "Nothing to do: this worker asks ZooKeeper which worker owns the task. If the error repeats, a second task (perhaps"
        " of another cluster) writes to the same topic: delete one of them.",
        Branch.FENCED,
    ),
    Code(
        "MR-3004",
        "a row is larger than the topic allows",
        "The record with both images of the row exceeds max.message.bytes of the topic. The message names the row.",
        "Raise max.message.bytes of the topic (and socket.request.max.bytes of the brokers), or exclude the table; then"
        " `millrace task resume TASK`.",
        Branch.OPERATOR,
    ),
    Code(
        "MR-3005",
        "Kafka refuses access",
        "The brokers refuse a principal or a delegation token, or their security features are off. Logins, certificates"
        " and ACLs have their own codes, from MR-7001 on.",
        "Correct the login or the brokers' settings that the message names, then `millrace task resume TASK`.",
        Branch.OPERATOR,
    ),
    Code(
        "MR-3006",
        "Kafka refuses a setting",
        "The broker or the client library refuses a name, a limit or a version.",
        "Change the setting that the message names, in the task or on the brokers, then `millrace task resume TASK`.",
        Branch.OPERATOR,
    ),
    Code(
        "MR-3007",
        "the topic does not exist",
        "The broker does not know the topic: it was just created, is being deleted, or was deleted.",
        "If the topic was deleted by mistake, restore it. The task retries by itself and stops if records are missing.",
        Branch.RETRIES,
    ),
    Code(
        "MR-3008",
        "Kafka answered with an unexpected error",
        "The error has no defined meaning for this request, and continuing could lose rows.",
        "Report the error with the broker's log. `millrace task resume TASK` continues after the last record in the topic.",
        Branch.OPERATOR,
    ),
    Code(
        "MR-3009",
        "the topic's settings do not fit a capture task",
        "The topic needs exactly one partition, cleanup.policy=delete, and a max.message.bytes of at least 512 KiB.",
        "Correct the settings that the message names, or name another topic in the task.",
        Branch.OPERATOR,
    ),
    Code(
        "MR-3010",
        "a newer owner has written to the topic",
        "The last records of the topic have a greater epoch than this worker's lease.",
        "Nothing to do if the task moved to another worker. Otherwise see MR-4006.",
        Branch.FENCED,
    ),
    Code(
        "MR-3011",
        "the topic contains a foreign record",
        "A program other than a Millrace capture task has written to the topic.",
        "Find the writer and revoke its right to write. Let all readers read what they can, delete the topic, then `millrace"
        " unsafe adopt-topic TASK --reason MR-3011`: it begins again after the progress in the task's status, with the next seq. Records that"
        " a reader has not read are lost for it. An apply task that had applied all of them continues by itself; any other"
        " one names what it misses (MR-5070).",
        Branch.OPERATOR,
    ),
    Code(
        "MR-3012",
        "the end of the topic does not show where capture must resume",
        "The last records of the topic are out of sequence, or none of them is a resolved record.",
        "Run `millrace topic verify TOPIC`. Let all readers read what they can, delete the topic, then `millrace unsafe"
        " adopt-topic TASK --reason MR-3012`: it begins again after the progress in the task's status, with the next seq. Records that a"
        " reader has not read are lost for it. An apply task that had applied all of them continues by itself; any other one"
        " names what it misses (MR-5070).",
        Branch.OPERATOR,
    ),
    Code(
        "MR-3013",
        "another writer has an open Kafka transaction in the topic",
        "The open transaction hides all later records from readers. It belongs to a task that had another name, or to a"
        " foreign client.",
        "Wait for its transaction.timeout.ms, or find it with `kafka-transactions.sh find-hanging` and abort it; then"
        " `millrace task resume TASK`.",
        Branch.OPERATOR,
    ),
    Code(
        "MR-3014",
        "a committed record is not where it must be",
        "The broker confirmed a commit, but the offset holds another record or none: a foreign client wrote to the topic,"
        " or a broker lost or aborted the transaction.",
        "Run `millrace topic verify TOPIC` and keep the broker's log. `millrace task resume TASK` continues after the last"
        " record in the topic.",
        Branch.OPERATOR,
    ),
    Code(
        "MR-3015",
        "the topic does not end at the last commit",
        "After a commit, the last stable offset is not directly after the commit marker: a foreign client wrote to the"
        " topic or has an open transaction.",
        "Find the other writer of the topic and revoke its right to write, then `millrace task resume TASK`.",
        Branch.OPERATOR,
    ),
    Code(
        "MR-3016",
        "commits can't be read back",
        "The consumer that audits commits gets no answers.",
        "Nothing to do: the task restarts after the last record in the topic. If the error repeats, check the brokers'"
        " load.",
        Branch.RETRIES,
    ),
    Code(
        "MR-3017",
        "the last records of the topic are gone",
        "Retention or a deletion removed them, or the topic was created again. The capture position is lost with them.",
        "`millrace unsafe adopt-topic TASK --reason MR-3017`: the topic continues after the progress in the task's status, with the next seq."
        " Delete the topic before if it has records. Records that a reader has not read are lost for it. If the topic was"
        " deleted, an apply task that had applied all of them continues by itself; any other one names what it misses"
        " (MR-5070).",
        Branch.OPERATOR,
    ),
    Code(
        "MR-3018",
        "the topic lost committed records",
        "The topic ends before records that this run committed, after an unclean leader election or a restored disk.",
        "Set unclean.leader.election.enable=false. `millrace task resume TASK` sends the records again; consumers that have"
        " read them skip them by seq.",
        Branch.OPERATOR,
    ),
    Code(
        "MR-3019",
        "retention removed rows of a source transaction that is still being published",
        "The first rows of the transaction were removed before the last were published. Millrace can no longer check that"
        " the source still has the same rows in the same order.",
        "`millrace unsafe skip-gtid TASK --gtid GTID --reason MR-3019` with the GTID in the message: the topic will never have the rest of"
        " this source transaction, and apply tasks stop there until you have repaired their targets. Set retention.bytes"
        " and retention.ms of the topic so that the largest source transaction fits.",
        Branch.OPERATOR,
    ),
    Code(
        "MR-3020",
        "the topic's settings differ from the task document",
        "The topic was created with other settings than `topic_settings` of the document, or they were changed later.",
        "Change the topic (`kafka-configs.sh --alter --entity-type topics`; replicas with `kafka-reassign-partitions.sh`)"
        " or the document, then `millrace task resume TASK`.",
        Branch.OPERATOR,
    ),
    Code(
        "MR-3021",
        "the topic can lose acknowledged records",
        "The topic has one replica, or one in-sync replica is enough to acknowledge a record. The loss of one broker can"
        " lose records.",
        "Give the topic 3 replicas and min.insync.replicas=2, or name the values you want in `topic_settings` of the task"
        " document.",
        Branch.OPERATOR,
    ),
    Code(
        "MR-3022",
        "a decision was made on another progress of the topic",
        "An operator decided with `millrace unsafe`, and the topic is no longer where it was then: another owner has"
        " published meanwhile. Nothing was written.",
        "`millrace unsafe withdraw TASK`, then `millrace task resume TASK`. If the task blocks again, decide again.",
        Branch.OPERATOR,
    ),
    Code(
        "MR-3501",
        "the topic can't be read",
        "No broker answers, or the topic does not exist.",
        "Check the topic's name and --kafka.",
        Branch.EITHER,
    ),
    Code(
        "MR-3502",
        "no Kafka broker was named",
        "Neither --kafka, --kafka-config nor MILLRACE_KAFKA names brokers, and no task in ZooKeeper has the topic.",
        "Give --kafka host:port. For a local stack, `millrace up --json` prints it.",
        Branch.OPERATOR,
    ),
    Code(
        "MR-3503",
        "the topic violates its guarantees",
        "`millrace topic verify` or a subscriber (`millrace.client`) found records that are missing, repeated, out of"
        " order, or written by a stale owner.",
        "Keep a copy of the topic and the brokers' logs, and report the violation. Repair the targets from the first"
        " violation on (`millrace compare TASK`). The task can continue in the topic. For a topic without the violation, delete"
        " it and run `millrace unsafe adopt-topic TASK --reason MR-3503` (see MR-3017).",
        Branch.OPERATOR,
    ),
)
