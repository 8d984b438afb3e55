"""65xx: conversion and DDL."""

from millrace.codes.code import START_AFTER, Branch, Code

CODES: tuple[Code, ...] = (
    Code(
        "MR-6501",
        "rows that were not logged as rows",
        "A session changed rows in statement format (binlog_format=STATEMENT or MIXED): the rows are not in the binlog.",
        "On every member: `SET GLOBAL binlog_format=ROW`. " + START_AFTER,
        Branch.OPERATOR,
    ),
    Code(
        "MR-6502",
        "an event type that is not supported",
        "The binlog holds an event that this version does not know, so it can't say that no row is lost.",
        "Report the type with the server's version; a newer Millrace may know it.",
        Branch.OPERATOR,
    ),
    Code(
        "MR-6503",
        "an anonymous transaction",
        "The source logged a transaction without a GTID (gtid_mode is not ON).",
        "On every member: `SET GLOBAL gtid_mode=ON` (in its steps). " + START_AFTER,
        Branch.OPERATOR,
    ),
    Code(
        "MR-6504",
        "row images are not whole",
        "A session logged rows with binlog_row_image=MINIMAL or NOBLOB: columns are missing.",
        "On every member: `SET GLOBAL binlog_row_image=FULL`. " + START_AFTER,
        Branch.OPERATOR,
    ),
    Code(
        "MR-6505",
        "JSON values logged in parts",
        "A session logged with binlog_row_value_options=PARTIAL_JSON: whole values are missing.",
        "On every member: `SET GLOBAL binlog_row_value_options=''`. " + START_AFTER,
        Branch.OPERATOR,
    ),
    Code(
        "MR-6506",
        "binlog events in an order that no source transaction has",
        "Events are missing or out of place in the relay log.",
        "Check the file with `mysqlbinlog`; remove the relay directory to fetch it anew.",
        Branch.OPERATOR,
    ),
    Code(
        "MR-6507",
        "rows that are rolled back in the binlog",
        "A transaction mixed tables with and without transactions and was rolled back: which rows stand is not in the binlog.",
        "Find the rows that the tables it names have now. " + START_AFTER,
        Branch.OPERATOR,
    ),
    Code(
        "MR-6508",
        "a source transaction that was published in part goes on in another way",
        "The task read it from another member before, and the one that is read now logged its rows in another order, or"
        " other rows. Going on could lose and double rows. Other members are tried, those that disagreed last.",
        "Bring back the member that was read before, or the worker with its relay directory; nothing else is to do. If both"
        " are lost, start the task on a new topic at the GTID set in its status.",
        Branch.RETRIES,
    ),
    Code(
        "MR-6509",
        "an encrypted binlog",
        "The binlog file is encrypted (MariaDB encrypt_binlog), and was not decrypted by the server.",
        "Read from a member with `encrypt_binlog=OFF`.",
        Branch.OPERATOR,
    ),
    Code(
        "MR-6510",
        "the source lost events",
        "The server wrote an incident event: changes are missing in its binlog from here on.",
        START_AFTER,
        Branch.OPERATOR,
    ),
    Code(
        "MR-6511",
        "the prepared part of an XA transaction is missing",
        "An XA COMMIT was logged, and neither the relay log nor the source's binlog reaches back to its XA PREPARE.",
        "While it is retried: nothing to do, the binlog is read from its first file. Blocked: load its tables again, and"
        " capture to another topic from behind the XA COMMIT.",
        Branch.OPERATOR,
    ),
    Code(
        "MR-6512",
        "a record that is too large",
        "One row needs more than 1 GiB as a record, or one compressed value inflates to more.",
        "Exclude the table in the task document, or make the row smaller.",
        Branch.OPERATOR,
    ),
    Code(
        "MR-6513",
        "an ALTER that is logged in two phases",
        "MariaDB logged START ALTER (binlog_alter_two_phase=ON).",
        "On every member: `SET GLOBAL binlog_alter_two_phase=OFF`. " + START_AFTER,
        Branch.OPERATOR,
    ),
)
