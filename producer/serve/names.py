"""File names that clients see: unique over all sub-directories of a relay log.

    sub-directory                                file                 served name
    3e11fa47-71ca-11e1-9e33-c80aa9429562.000002  mysql-bin.000017     mysql-bin-000002.000017

Two members may both have a ``mysql-bin.000017``. A client that keeps a file and a position must never find another
member's file under that name, so the sequence number of the sub-directory is a part of it.
"""

from producer.relay.layout import SEQ_DIGITS, Subdir


def served_name(subdir: Subdir, name: str) -> str:
    """The name under which a file is served."""
    stem, dot, number = name.rpartition(".")
    return f"{stem}-{subdir.seq:0{SEQ_DIGITS}d}{dot}{number}"
