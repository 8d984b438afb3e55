"""2xxx: the relay log."""

from millrace.codes.code import Branch, Code

CODES: tuple[Code, ...] = (
    Code(
        "MR-2001",
        "the relay directory is in use",
        "Another process holds the lock of the relay directory.",
        "Nothing to do if a worker was just replaced. Otherwise stop the process that holds the lock (`fuser DIR/lock`).",
        Branch.RETRIES,
    ),
    Code(
        "MR-2002",
        "the relay log can't be written",
        "The disk is full, read-only, or reports an error. The message repeats the system's error.",
        "Free space on the disk or repair it. The stream then resumes where the relay log ends.",
        Branch.RETRIES,
    ),
    Code(
        "MR-2003",
        "the relay log could not be synced to disk",
        "fsync failed, so everything written since the last successful fsync is discarded.",
        "Check the disk. The discarded part is read from the source again.",
        Branch.RETRIES,
    ),
    Code(
        "MR-2004",
        "a relay file is damaged",
        "A checksum, length or position inside the file is wrong: the disk does not return what was written.",
        "Check the disk. A closed file is set aside as FILE.damaged, and its part is read from a member again; if no member has"
        " it, MR-1031 follows. For any other file, remove the relay directory: the worker reads the binlog from the source again.",
        Branch.OPERATOR,
    ),
    Code(
        "MR-2005",
        "the stream from the source is broken",
        "A packet is missing, out of sequence or of an impossible length.",
        "Nothing to do: the task reconnects. If the error repeats, check proxies between the worker and the source.",
        Branch.RETRIES,
    ),
    Code(
        "MR-2006",
        "a binlog event arrived with a wrong checksum",
        "The event was damaged in transit or in the source's file.",
        "Nothing to do: the event is read again. If the error repeats, run `mysqlbinlog --verify-binlog-checksum` on the"
        " source.",
        Branch.RETRIES,
    ),
    Code(
        "MR-2007",
        "the position of a binlog event is wrong",
        "The position in the event differs from its offset in the file: bytes are missing.",
        "Read from another member.",
        Branch.OPERATOR,
    ),
    Code(
        "MR-2008",
        "the binlog contains events in an unknown order",
        "No source transaction that Millrace knows has this order of events.",
        "Report the file, the position and the server's version. Read from another member meanwhile.",
        Branch.OPERATOR,
    ),
    Code(
        "MR-2009",
        "a binlog file has no checksums",
        "binlog_checksum was NONE when the source opened this file.",
        "`SET GLOBAL binlog_checksum = 'CRC32'; FLUSH BINARY LOGS`. To leave out the file's changes, `millrace"
        " unsafe reset-position TASK --gtid GTID-SET --reason MR-2009` with the GTID set before the first file that has checksums. The topic will"
        " never have them: apply tasks stop there until you have repaired their targets.",
        Branch.OPERATOR,
    ),
    Code(
        "MR-2010",
        "the source uses a binlog file name that can't be used",
        "The name is not a plain file name that ends in a number.",
        "Check log_bin of the source, and proxies between the worker and the source.",
        Branch.OPERATOR,
    ),
    Code(
        "MR-2011",
        "a position is missing in the relay log",
        "The relay file was purged or the relay directory was removed.",
        "Nothing to do: the task restarts and reads what it needs from the source.",
        Branch.RETRIES,
    ),
    Code(
        "MR-2012",
        "no worker can purge this relay log",
        "Only the worker that runs the set's tasks knows what they have published. No worker runs them, or its relay, with"
        " this relay directory, or the worker did not answer.",
        "Find the set's worker in `millrace status`. Run the command while its relay or a task of the set runs; with"
        " --relay-dir, on its machine. If the set is no longer captured, remove the directory.",
        Branch.OPERATOR,
    ),
    Code(
        "MR-2013",
        "a file is missing in the relay log",
        "The set's relay directory has no binlog file or sub-directory with this name, or the command was given options"
        " that exclude each other.",
        "Check the name of the set and the directory: `--relay-dir` is the one given to `millrace worker`. The names of files are"
        " FILE or SUBDIR/FILE, as `millrace relay list SET --relay-dir DIR` prints them.",
        Branch.OPERATOR,
    ),
    Code(
        "MR-2014",
        "the task was evicted from the relay log",
        "An operator ran `millrace relay purge SET --relay-dir DIR --evict TASK` with the name of this task, to free the disk. Relay files that the"
        " task had not published were deleted.",
        "`millrace task resume TASK`: the task reads from the source again what the source still has, and all tasks of"
        " the set read again from there. If the source has purged it too, the task stops with MR-1031.",
        Branch.OPERATOR,
    ),
    Code(
        "MR-2015",
        "the task to evict is unknown",
        "No capture task of the set with this name runs on the worker or has published anything. Nothing was deleted.",
        "Use a name from `millrace status`.",
        Branch.OPERATOR,
    ),
    Code(
        "MR-2020",
        "the address to serve on is not protected",
        "`millrace relay serve` was told to listen on an address that other machines can reach, without TLS or without a password."
        " The relay log has every row of the set.",
        "Give `--tls-cert`, `--tls-key` and `--password env:NAME` (or `file:/PATH`), or listen on 127.0.0.1.",
        Branch.OPERATOR,
    ),
    Code(
        "MR-2021",
        "the certificate to serve with can't be used",
        "The certificate or its key is missing, unreadable, or they do not belong together.",
        "Give `--tls-cert` and `--tls-key` as PEM files that the user of the process can read; the first certificate in the file is the server's.",
        Branch.OPERATOR,
    ),
    Code(
        "MR-2022",
        "an option of `millrace relay serve` is malformed",
        "`--listen` is not HOST:PORT, or `--password` is not the place of a secret.",
        "Write `--listen 127.0.0.1:3307` and `--password env:NAME` or `--password file:/PATH`. A password in the argument list would be visible to"
        " every user of the machine.",
        Branch.OPERATOR,
    ),
)
