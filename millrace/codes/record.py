"""60xx: record schemas and the registry."""

from millrace.codes.code import Branch, Code, skip_fix

CODES: tuple[Code, ...] = (
    Code(
        "MR-6001",
        "a value is not a GTID or GTID set",
        "The text does not have the form that this flavour (MySQL or MariaDB) uses.",
        "Write it as the server prints it: `SELECT @@gtid_executed` (MySQL), `SELECT @@gtid_binlog_pos` (MariaDB).",
        Branch.OPERATOR,
    ),
    Code(
        "MR-6002",
        "a GTID sequence number went backwards",
        "A MariaDB source logged a sequence number that is not greater than an earlier one of the same domain.",
        "Run `SET GLOBAL gtid_strict_mode=ON` on every member. Compare the target, then start at an explicit GTID set.",
        Branch.OPERATOR,
    ),
    Code(
        "MR-6003",
        "a binlog event can't be decoded",
        "The bytes of the event do not have the form that its type requires.",
        "Check the file with `mysqlbinlog --verify-binlog-checksum`. Remove the relay directory to read the binlog from the"
        " source again.",
        Branch.OPERATOR,
    ),
    Code(
        "MR-6004",
        "a table map has no full metadata",
        "The source writes table maps without column names (binlog_row_metadata=MINIMAL).",
        "On every member: `SET GLOBAL binlog_row_metadata=FULL`, and set it in the configuration. Events that are already"
        " in the binlog do not change. " + skip_fix("MR-6004"),
        Branch.OPERATOR,
    ),
    Code(
        "MR-6005",
        "a column type is not supported",
        "A table has a column that Millrace can't represent without loss.",
        "Exclude the table in the task document, or change the column's type. "
        + skip_fix("MR-6005"),
        Branch.OPERATOR,
    ),
    Code(
        "MR-6006",
        "a collation is unknown",
        "Millrace does not know the collation id of a column, so it can't decode the column's text.",
        "Exclude the table in the task document, and report the collation with the server's version.",
        Branch.OPERATOR,
    ),
    Code(
        "MR-6007",
        "a record can't be decoded",
        "The bytes in the topic are not a Millrace record, or do not match the schema that they name.",
        "Run `millrace topic verify TOPIC` to find the offset, and check that no other program writes to the topic.",
        Branch.OPERATOR,
    ),
    Code(
        "MR-6008",
        "a value is not a relay log position",
        "The text does not have the form sub-directory/file:offset, or the file name does not end in a number.",
        "Copy the position unchanged from `millrace status --json`.",
        Branch.OPERATOR,
    ),
    Code(
        "MR-6009",
        "unknown schema id",
        "A record names a schema that is neither earlier in the topic nor in the registry.",
        "Start reading at an earlier offset, or give the registry that the capture task uses.",
        Branch.OPERATOR,
    ),
    Code(
        "MR-6010",
        "a schema was not written by Millrace",
        "The Avro schema does not have the properties that Millrace adds, so its columns are unknown.",
        "Check that a Millrace capture task wrote the topic.",
        Branch.OPERATOR,
    ),
    Code(
        "MR-6020",
        "the schema registry can't be reached",
        "The registry did not answer or reported an internal error, or another service answered at its address.",
        "Check the address in the task document and that the registry runs: `curl <registry>/subjects`.",
        Branch.RETRIES,
    ),
    Code(
        "MR-6021",
        "the schema registry refused a request",
        "The registry does not accept the schema, requires other rights, or is another kind of server.",
        "Read the registry's answer in the message. The compatibility of the topic's subjects must be NONE.",
        Branch.OPERATOR,
    ),
    Code(
        "MR-6022",
        "the registry's topic can't be used",
        "The topic that stores the built-in registry has other settings or contents than the registry wrote, or the broker refuses a request for it.",
        "Give the topic one partition and cleanup.policy=compact. Never write to it manually.",
        Branch.OPERATOR,
    ),
    Code(
        "MR-6023",
        "another registry has taken over",
        "Another built-in registry has taken over the topic, so this one may no longer write.",
        "Stop one of the two, or give one its own `--topic`. Clients need only the address of the registry that runs.",
        Branch.FENCED,
    ),
    Code(
        "MR-6024",
        "the registry assigned a schema id twice",
        "The same id was assigned to two schemas while the task ran: the registry lost its data, or another registry"
        " answers at its address.",
        "Nothing to do for the topic: the task restarts and publishes its schemas again. Readers that look up ids of older"
        " records need the former registry.",
        Branch.RETRIES,
    ),
    Code(
        "MR-6025",
        "another registry serves the topic",
        "A built-in registry is running on the same topic, and only one can serve it.",
        "Use the registry that the message names, stop it, or give one of the two its own `--topic`. With `--take-over`"
        " this registry replaces the other, which then ends with MR-6023.",
        Branch.OPERATOR,
    ),
)
