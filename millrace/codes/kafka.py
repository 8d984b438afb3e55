"""3xxx: Kafka. 30xx publisher, 35xx reading topics."""

from millrace.codes.code import Branch, Code

CODES: tuple[Code, ...] = (
    Code(
        "MR-3001",
        "the Kafka broker can't be reached",
        "No broker answers, the partition or transaction coordinator has no leader yet, or fewer brokers are up than a new"
        " topic has replicas.",
        "Check `kafka.bootstrap` of the task and that the brokers run; the task goes on by itself.",
        Branch.RETRIES,
    ),
    Code(
        "MR-3002",
        "the outcome of a Kafka transaction is unknown",
        "A producer instance reported an error in the middle of its work.",
        "Nothing to do: the topic's tail is read and sending resumes behind it. If it repeats, read the broker's log.",
        Branch.RETRIES,
    ),
    Code(
        "MR-3003",
        "a newer producer took over",
        "Another worker took over the topic, or this one slept longer than a transaction lasts.",
        "Nothing to do: this worker asks ZooKeeper who owns the task. If it comes again and again, a second task, or"
        " one of another cluster, writes to the same topic: delete one of them.",
        Branch.FENCED,
    ),
    Code(
        "MR-3004",
        "a row is larger than the topic allows",
        "The record with both images of the row named exceeds max.message.bytes of the topic.",
        "Raise max.message.bytes of the topic (and socket.request.max.bytes of the brokers), then"
        " `millrace task resume`; or exclude the table.",
        Branch.OPERATOR,
    ),
    Code(
        "MR-3005",
        "Kafka does not let us",
        "Authentication failed, or rights are missing: Write and Describe on topic and transactional id, Read on the"
        " topic.",
        "Mend the credentials or ACLs named above, then `millrace task resume`.",
        Branch.OPERATOR,
    ),
    Code(
        "MR-3006",
        "Kafka refuses a setting",
        "The broker or the client library refuses what was asked: a name, a limit, a version.",
        "Change the setting named above in the task or on the brokers, then `millrace task resume`.",
        Branch.OPERATOR,
    ),
    Code(
        "MR-3007",
        "the topic is not there",
        "The broker doesn't know the topic: just created, being deleted, or deleted.",
        "If it was deleted by mistake, restore it; the task looks again by itself and stops if records are missing.",
        Branch.RETRIES,
    ),
    Code(
        "MR-3008",
        "Kafka answered with an unexpected error",
        "An error that has no meaning for what was asked; going on could lose rows.",
        "Report it with the broker's log; `millrace task resume` starts again behind what stands in the topic.",
        Branch.OPERATOR,
    ),
    Code(
        "MR-3009",
        "the topic can't carry a set",
        "A set topic has one partition, cleanup.policy=delete, and room for at least 512 KiB a record.",
        "Correct the settings named, or name another topic in the task.",
        Branch.OPERATOR,
    ),
    Code(
        "MR-3010",
        "a newer owner has written to the topic",
        "The tail of the topic names a greater epoch than our lease's.",
        "Nothing to do if the task moved; else see MR-4006.",
        Branch.FENCED,
    ),
    Code(
        "MR-3011",
        "a foreign record stands in the topic",
        "Something other than a capture task of Millrace has written to the set topic.",
        "Find the writer and take its right away; then start the task on a new topic.",
        Branch.OPERATOR,
    ),
    Code(
        "MR-3012",
        "the topic's tail does not say where to go on",
        "Records are left at the end of the topic, but no resolved record or not in sequence.",
        "Run `millrace topic verify TOPIC`; start the task on a new topic at a GTID that you know.",
        Branch.OPERATOR,
    ),
    Code(
        "MR-3013",
        "another writer's Kafka transaction is open in the topic",
        "It hides every later record from readers; it may be a former task's of another name, or a foreign client's.",
        "Wait for its transaction.timeout.ms, or find it with `kafka-transactions.sh find-hanging` and abort it;"
        " then `millrace task resume`.",
        Branch.OPERATOR,
    ),
    Code(
        "MR-3014",
        "a committed record does not stand where it must",
        "The broker confirmed a commit, but reading it back gives another record or none: a foreign writer, or a broker"
        " that lost or aborted it.",
        "Run `millrace topic verify TOPIC` and keep the broker's log; `millrace task resume` starts behind the tail.",
        Branch.OPERATOR,
    ),
    Code(
        "MR-3015",
        "the topic does not end where it must",
        "After a commit the stable end is not exactly behind its marker: a foreign writer or an open transaction.",
        "Find the other writer of the topic and take its right away, then `millrace task resume`.",
        Branch.OPERATOR,
    ),
    Code(
        "MR-3016",
        "commits can't be read back",
        "The reader that audits commits gets no answers.",
        "Nothing to do: the task starts again behind the topic's tail. If it lasts, check the brokers' load.",
        Branch.RETRIES,
    ),
    Code(
        "MR-3017",
        "the topic lost its tail",
        "Retention, a deletion or an empty new topic of the same name: nothing says how far capture was.",
        "Decide where to go on: start the task on a new topic at a GTID that every consumer has seen.",
        Branch.OPERATOR,
    ),
    Code(
        "MR-3018",
        "committed records have gone from the topic",
        "The topic ends before records that were committed in this run: an unclean leader election or a restored disk.",
        "Set unclean.leader.election.enable=false; consumers that saw them skip by seq. `millrace task resume` sends"
        " them again.",
        Branch.OPERATOR,
    ),
    Code(
        "MR-3019",
        "rows of a source transaction that is published in part have gone from the topic",
        "Retention took the first of its rows before the last were published, so nothing shows that the source still has"
        " the same rows in the same order.",
        "Start the task on a new topic, at the GTID set in its status; give the topic more room (retention.bytes,"
        " retention.ms) than the largest source transaction takes.",
        Branch.OPERATOR,
    ),
    Code(
        "MR-3020",
        "the topic is not as the task document says",
        "It was created with other settings than `topic_settings` of the document name, or was changed since.",
        "Change the topic (`kafka-configs.sh --alter --entity-type topics`, replicas by `kafka-reassign-partitions.sh`),"
        " or the document, then `millrace task resume`.",
        Branch.OPERATOR,
    ),
    Code(
        "MR-3021",
        "the topic can lose records that were acknowledged",
        "It has one replica, or one in-sync replica is enough to acknowledge: the loss of one broker can take records.",
        "Give the topic 3 replicas and min.insync.replicas=2, or name the values you want in `topic_settings` of the"
        " task document.",
        Branch.OPERATOR,
    ),
    Code(
        "MR-3501",
        "the topic can't be read",
        "No broker answers, the topic doesn't exist, or the right to read it is missing.",
        "Check the topic's name, --kafka and the ACLs.",
        Branch.EITHER,
    ),
    Code(
        "MR-3502",
        "no broker was named",
        "Neither --kafka nor MILLRACE_KAFKA is set, and no task in ZooKeeper writes the topic.",
        "Give --kafka host:port; for a local stack `millrace up --json` names it.",
        Branch.OPERATOR,
    ),
    Code(
        "MR-3503",
        "the topic violates its guarantees",
        "`millrace topic verify` or a subscriber (`millrace.client`) found records that are missing, repeated, out of order or of a stale owner.",
        "Keep the topic and the brokers' logs, and report it; start the task on a new topic.",
        Branch.OPERATOR,
    ),
)
