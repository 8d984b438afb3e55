"""2xxx: the relay log."""

from millrace.codes.code import START_AFTER, Branch, Code

CODES: tuple[Code, ...] = (
    Code(
        "MR-2001",
        "the relay directory is in use",
        "Another process holds the lock of the relay directory.",
        "Nothing to do when a worker has just been replaced; else end the process that holds it (`fuser DIR/lock`).",
        Branch.RETRIES,
    ),
    Code(
        "MR-2002",
        "the disk of the relay log fails",
        "It is full, read-only, or answers with an error; the system's words are given.",
        "Free space or mend the disk; the stream goes on by itself where the relay log ends.",
        Branch.RETRIES,
    ),
    Code(
        "MR-2003",
        "the relay log could not be made durable",
        "fsync failed, so what was written since the last one is not trusted any more.",
        "Check the disk; what was in doubt is cut off and fetched again by itself.",
        Branch.RETRIES,
    ),
    Code(
        "MR-2004",
        "a relay file is damaged",
        "Bytes in the middle of a relay file are not what was written: checksum, length or position disagree.",
        "Check the disk, then remove the relay directory: it is fetched again from the source.",
        Branch.OPERATOR,
    ),
    Code(
        "MR-2005",
        "the stream of the source is not in order",
        "A packet is missing, out of sequence or of an impossible length.",
        "Nothing to do: the connection is made anew; if it repeats, look at proxies on the way.",
        Branch.RETRIES,
    ),
    Code(
        "MR-2006",
        "an event came with a wrong checksum",
        "It was damaged on the way or in the source's file.",
        "Nothing to do at first: it is fetched again; if it repeats, `mysqlbinlog --verify-binlog-checksum` on the source.",
        Branch.RETRIES,
    ),
    Code(
        "MR-2007",
        "an event is not at its place",
        "The position an event names is not the offset it has: bytes are missing (MariaDB's encrypted files are so).",
        "Read from another member; MariaDB with encrypt_binlog=ON can't be read byte by byte.",
        Branch.OPERATOR,
    ),
    Code(
        "MR-2008",
        "the binlog has a form that is not understood",
        "Events came in an order that no source transaction has.",
        "Report the file and position with the server's version; read from another member meanwhile.",
        Branch.OPERATOR,
    ),
    Code(
        "MR-2009",
        "a binlog file was begun without checksums",
        "binlog_checksum was NONE when the source opened this file.",
        "`SET GLOBAL binlog_checksum = 'CRC32'; FLUSH BINARY LOGS`. " + START_AFTER,
        Branch.OPERATOR,
    ),
    Code(
        "MR-2010",
        "the source names a binlog file in an unusable way",
        "The name is no plain file name that ends in a number.",
        "Check log_bin of the source and what is between it and us.",
        Branch.OPERATOR,
    ),
    Code(
        "MR-2011",
        "these coordinates are not in the relay log",
        "The file was purged or the relay directory removed.",
        "Nothing to do: the task starts again and fetches what it needs from the source.",
        Branch.RETRIES,
    ),
    Code(
        "MR-2012",
        "no worker purges this relay log",
        "Only the worker that runs the set's tasks knows what they have published; here none does, or it did not answer.",
        "Look at `millrace status`: run the command on the machine of the worker that has the set, with its --relay-dir, while"
        " a task of the set runs. Of a set that is captured no more, remove the directory.",
        Branch.OPERATOR,
    ),
    Code(
        "MR-2013",
        "no such file in the relay log",
        "The set's relay directory has no binlog file of this name, or two ends were given.",
        "List the directory; name the file as it stands there, or SUBDIR/FILE, or nothing for all that is published.",
        Branch.OPERATOR,
    ),
)
