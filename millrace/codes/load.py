"""508x: rows that a load copies."""

from millrace.codes.code import Branch, Code

CODES: tuple[Code, ...] = (
    Code(
        "MR-5080",
        "the target would change a copied row",
        "A load copies rows exactly. The target did not write a row, or changed a value: the column is narrower there, its"
        " character set has no such character, it refuses NULL, or a CHECK or a partition refuses the row. A text that is"
        " converted may have bytes that are no characters. The message has the server's first warnings. The chunk was"
        " rolled back.",
        "Make the table on the target like the source's (SHOW CREATE TABLE), or correct the row on the source. Then"
        " repeat the load of the table.",
        Branch.OPERATOR,
    ),
    Code(
        "MR-5081",
        "a copied row exists on the target",
        "The target has a row with the key in the message before the load wrote it: the table was not empty, another"
        " program writes to it, or a unique key of the target compares other columns or by another collation than the"
        " source's.",
        "Compare the keys of both tables (SHOW CREATE TABLE). If the rows on the target are not needed, TRUNCATE the table"
        " there. Then repeat the load of the table.",
        Branch.OPERATOR,
    ),
    Code(
        "MR-5082",
        "a column can't be copied to a column of this type",
        "The types in the message differ so that values can't be copied without loss, or Millrace does not know one of"
        " them.",
        "Give the column on the target the source's type (ALTER TABLE), or leave the table out of the load.",
        Branch.OPERATOR,
    ),
    Code(
        "MR-5083",
        "the target takes no LOAD DATA any more",
        "`local_infile` was switched off while a load ran. The load then uses INSERT, which is slower.",
        "Nothing to do: the load repeats the chunk. For the faster way, SET GLOBAL local_infile=ON on the target.",
        Branch.RETRIES,
    ),
    Code(
        "MR-5090",
        "no member of the source set can be loaded from",
        "A load reads a replica that answers, replicates without an error, has the settings that capture demands (but for the"
        " format of rows in the binlog), and has the transactions that it needs. It does not read the primary, unless it is"
        " the only member.",
        "Correct what the message names for a member. `load: {from_primary: true}` in the task document allows the primary."
        " The task retries by itself.",
        Branch.RETRIES,
    ),
    Code(
        "MR-5091",
        "a table that shall be loaded has rows on the target",
        "`start: load` copies a table into an empty one, because it can't know which of the rows are right.",
        "If the rows may go, `TRUNCATE TABLE` it on the target. If they shall stay, add the table to `exclude`, or use"
        " `start: {GTID set}` with safe mode. Then `millrace task resume TASK`.",
        Branch.OPERATOR,
    ),
    Code(
        "MR-5092",
        "a table that shall be loaded has another structure on the target",
        "Columns, types, collations or unique keys differ, or the target stores two tables of the source as one.",
        "Drop the table on the target, and the load creates it as on the source. Or alter it as the message says, or add it"
        " to `exclude`. Then `millrace task resume TASK`.",
        Branch.OPERATOR,
    ),
    Code(
        "MR-5093",
        "the source can't name the position of a snapshot",
        "MariaDB finds the GTIDs of a snapshot in its binlog, and the file is gone.",
        "Raise expire_logs_days on the members of the set. The task retries by itself.",
        Branch.RETRIES,
    ),
    Code(
        "MR-5094",
        "the target refuses to create a table of a load",
        "The target does not know an option, a collation or a type of the source, or does not allow it.",
        "Create the table on the target with the same columns and unique keys, or add it to `exclude`. Then"
        " `millrace task resume TASK`.",
        Branch.OPERATOR,
    ),
    Code(
        "MR-5095",
        "a table of the source can't be read consistently",
        "Its engine is not transactional, so a read may see rows of which the binlog knows nothing yet.",
        "ALTER TABLE … ENGINE=InnoDB on the source, or add the table to `exclude`. Then `millrace task resume TASK`.",
        Branch.OPERATOR,
    ),
    Code(
        "MR-5096",
        "a load waits for its topic",
        "The topic has no record yet, so it is not known which changes it will have.",
        "Start the capture task of the topic. The task retries by itself.",
        Branch.RETRIES,
    ),
    Code(
        "MR-5097",
        "a load pauses",
        "The replica that is read has a greater lag than `max_lag_s`, or the target has more running threads than"
        " `max_threads_running`.",
        "Nothing to do: the load continues when both are below their limits. They are fields of `load` in the task document.",
        Branch.RETRIES,
    ),
)
