"""65xx: conversion and DDL."""

from millrace.codes.code import Branch, Code, skip_fix

CODES: tuple[Code, ...] = (
    Code(
        "MR-6501",
        "rows were not logged in row format",
        "A session changed rows in statement format (binlog_format=STATEMENT or MIXED), so the binlog does not contain"
        " the rows.",
        "On every member: `SET GLOBAL binlog_format=ROW`. " + skip_fix("MR-6501"),
        Branch.OPERATOR,
    ),
    Code(
        "MR-6502",
        "a binlog event is not supported",
        "This version does not know the event's type, or a flag of its rows, and can't exclude that it changes rows.",
        "Report the message with the server's version. A newer Millrace may support it. "
        + skip_fix("MR-6502"),
        Branch.OPERATOR,
    ),
    Code(
        "MR-6503",
        "a transaction has no GTID",
        "The source logged an anonymous transaction (gtid_mode is not ON).",
        "On every member, set `gtid_mode` step by step to `ON`. Commit a transaction on the primary, then `FLUSH BINARY LOGS`"
        " on every member. Remove the relay directory of the set on the worker. Then, with `@@GLOBAL.gtid_executed` of the"
        " primary, `millrace unsafe reset-position TASK --gtid GTID-SET --reason MR-6503`. The topic will never have the changes without a GTID nor"
        " those up to the GTID set: apply tasks stop there until you have repaired their targets.",
        Branch.OPERATOR,
    ),
    Code(
        "MR-6504",
        "row images are not full",
        "A session logged rows with binlog_row_image=MINIMAL or NOBLOB, so columns are missing. Or MariaDB 11.8 left out a"
        " generated column of a type such as TEXT, or all columns outside the primary key are generated: the rows look the"
        " same then.",
        "On every member: `SET GLOBAL binlog_row_image=FULL`. If the missing columns are generated, add a plain TEXT column"
        " to the table on the source, which may stay NULL. " + skip_fix("MR-6504"),
        Branch.OPERATOR,
    ),
    Code(
        "MR-6505",
        "JSON values are logged in parts",
        "A session logged rows with binlog_row_value_options=PARTIAL_JSON, so whole values are missing.",
        "On every member: `SET GLOBAL binlog_row_value_options=''`. " + skip_fix("MR-6505"),
        Branch.OPERATOR,
    ),
    Code(
        "MR-6506",
        "binlog events are in an impossible order",
        "Events are missing or misplaced in the relay log.",
        "Check the file with `mysqlbinlog`. Remove the relay directory to read the binlog from the source again.",
        Branch.OPERATOR,
    ),
    Code(
        "MR-6507",
        "the binlog contains rows that were rolled back",
        "MariaDB logs rolled-back rows if their transaction creates or drops a temporary table. Capture drops them, but"
        " here some are already published (a ROLLBACK TO SAVEPOINT in a transaction larger than a batch), or the"
        " transaction also has statements, or its savepoint is not clear.",
        "Don't create or drop temporary tables in large transactions with savepoints. "
        + skip_fix("MR-6507"),
        Branch.OPERATOR,
    ),
    Code(
        "MR-6508",
        "two members logged a partly published source transaction differently",
        "The task published the first part from another member. The member it reads now logged the rows in another order,"
        " or other rows, so continuing could lose or duplicate rows. The task tries the other members, those that"
        " differed last.",
        "Bring back the member that was read before, or the worker with its relay directory. If both are lost: `millrace"
        " task pause TASK`, then `millrace unsafe skip-gtid TASK --gtid GTID --reason MR-6508` with the GTID in the message. The topic will"
        " never have the rest of this source transaction: apply tasks stop there until you have repaired their targets.",
        Branch.RETRIES,
    ),
    Code(
        "MR-6509",
        "the binlog is encrypted",
        "MariaDB encrypted the binlog file (encrypt_binlog) and did not decrypt it for the stream. It does so for every"
        " replica, so the bytes came another way.",
        "Delete the relay directory of the set, so that the files are received again. Or read from a member with"
        " `encrypt_binlog=OFF`.",
        Branch.OPERATOR,
    ),
    Code(
        "MR-6510",
        "the source lost events",
        "The server wrote an incident event: changes are missing in its binlog from this position.",
        skip_fix("MR-6510"),
        Branch.OPERATOR,
    ),
    Code(
        "MR-6511",
        "the prepared part of an XA transaction is missing",
        "The binlog contains an XA COMMIT, but neither the relay log nor the source's binlog reaches back to its XA"
        " PREPARE.",
        "While the task retries: nothing to do, it reads the binlog from the first file. If it is blocked: "
        + skip_fix("MR-6511"),
        Branch.OPERATOR,
    ),
    Code(
        "MR-6512",
        "a record is too large",
        "The record of one row needs more than 1 GiB, or one compressed value expands to more.",
        "Exclude the table in the task document, or make the row smaller.",
        Branch.OPERATOR,
    ),
    Code(
        "MR-6513",
        "an ALTER is logged in two phases",
        "MariaDB logged START ALTER (binlog_alter_two_phase=ON).",
        "On every member: `SET GLOBAL binlog_alter_two_phase=OFF`. " + skip_fix("MR-6513"),
        Branch.OPERATOR,
    ),
    Code(
        "MR-6520",
        "a row of a snapshot can't be encoded",
        "The source returned a value that its column's type does not allow, so the row has no record. The snapshot leaves"
        " the table out and continues with the next one.",
        "Read the column of the message on the source. Correct the value, or report it with the server's version. Then"
        " ask for the table again with `millrace task snapshot TASK`.",
        Branch.OPERATOR,
    ),
)
