"""60xx: record schemas and the registry."""

from millrace.codes.code import START_AFTER, Branch, Code

CODES: tuple[Code, ...] = (
    Code(
        "MR-6001",
        "not a GTID or GTID set",
        "A text or value is not a GTID (set) of the flavour it is used with.",
        "Write it as the server prints it: `SELECT @@gtid_executed` (MySQL), `SELECT @@gtid_binlog_pos` (MariaDB).",
        Branch.OPERATOR,
    ),
    Code(
        "MR-6002",
        "a GTID sequence went backwards",
        "A MariaDB source gave a sequence number at or below one it gave before in the same domain.",
        "Set `SET GLOBAL gtid_strict_mode=ON` on every member; compare the target, then start at a named GTID.",
        Branch.OPERATOR,
    ),
    Code(
        "MR-6003",
        "a binlog event can't be read",
        "The bytes of an event don't have the form that its type prescribes.",
        "Check the file with `mysqlbinlog --verify-binlog-checksum`; remove the relay directory to fetch it anew.",
        Branch.OPERATOR,
    ),
    Code(
        "MR-6004",
        "a table map without full metadata",
        "The source writes table maps without column names (binlog_row_metadata=MINIMAL).",
        "On every member: `SET GLOBAL binlog_row_metadata=FULL` (and in its configuration). What was logged before stays as"
        " it is. " + START_AFTER,
        Branch.OPERATOR,
    ),
    Code(
        "MR-6005",
        "a column type that is not supported",
        "A table has a column whose type Millrace can't carry without loss.",
        "Exclude the table in the task document, or change the column's type. " + START_AFTER,
        Branch.OPERATOR,
    ),
    Code(
        "MR-6006",
        "an unknown collation",
        "A column has a collation id that Millrace doesn't know, so its bytes can't be turned into text.",
        "Exclude the table in the task document, and report the collation with the server's version.",
        Branch.OPERATOR,
    ),
    Code(
        "MR-6007",
        "a record can't be decoded",
        "Bytes in the topic are not a record of this project, or not of the schema they name.",
        "Check that nobody else writes to the topic: `millrace topic verify TOPIC` names the offset.",
        Branch.OPERATOR,
    ),
    Code(
        "MR-6008",
        "not relay coordinates",
        "A text is not of the form sub-directory/file:offset, or a name in it has no number.",
        "Take the coordinates from `millrace status --json` as they are.",
        Branch.OPERATOR,
    ),
    Code(
        "MR-6009",
        "a schema id nobody explains",
        "A record names a schema that stands neither before it in the topic nor in the registry.",
        "Start reading at an earlier offset, or give the registry that the capture task writes to.",
        Branch.OPERATOR,
    ),
    Code(
        "MR-6010",
        "a schema that is not ours",
        "An Avro schema lacks the properties that Millrace writes, so its columns can't be known.",
        "Check that the topic was written by a capture task of Millrace.",
        Branch.OPERATOR,
    ),
    Code(
        "MR-6020",
        "the schema registry can't be reached",
        "The registry did not answer, answered that it has trouble of its own, or something else answered in its place.",
        "Check the address in the task document and that the registry runs: `curl <registry>/subjects`.",
        Branch.RETRIES,
    ),
    Code(
        "MR-6021",
        "the schema registry refused",
        "The registry answered that the request is wrong: a schema it doesn't take, no rights, another kind of server.",
        "Read its message above; compatibility of the topic's subjects must be NONE.",
        Branch.OPERATOR,
    ),
    Code(
        "MR-6022",
        "the registry's topic is not usable",
        "The topic that stores the built-in registry has other settings or contents than the registry wrote.",
        "Give it one partition and cleanup.policy=compact; never write to it by hand.",
        Branch.OPERATOR,
    ),
    Code(
        "MR-6023",
        "another registry has taken over",
        "A second built-in registry was started on the same topic, so this one may write no more.",
        "Keep one of the two, or give one a `--topic` of its own; clients only need the address of the one that runs.",
        Branch.FENCED,
    ),
    Code(
        "MR-6024",
        "the registry forgot what it gave ids to",
        "One id was given to two schemas while the task ran: the registry lost its store, or another one stands there.",
        "Nothing to do for the topic: the task starts anew and explains its schemas again. Readers that ask the registry"
        " for ids of older records need the former one.",
        Branch.RETRIES,
    ),
)
