"""A publisher in a separate process: it publishes until the topic holds ROWS rows, and prints how it ended.

    python -m tests.kit.publisher.process BOOTSTRAP TOPIC EPOCH ROWS

Prints "open SEQ" when it is open, then "done", or the branch and code of the error that ended it.
"""

import sys

from millrace.errors import MillraceError
from tests.kit.publisher.rig import Rig

BATCH_ROWS = 7  # batches end at every place of source transactions of three rows


def main(bootstrap: str, topic: str, epoch: str, rows: str) -> str:
    """Run; returns the last line to print."""
    rig = Rig(bootstrap, topic)
    try:
        publisher = rig.open(int(epoch))
        print("open", publisher.progress.seq, flush=True)
        stream = rig.stream(publisher)
        while publisher.progress.seq < int(rows):
            publisher.publish(
                stream.next_batch(min(BATCH_ROWS, int(rows) - publisher.progress.seq))
            )
        publisher.close()
    except MillraceError as error:
        return f"{type(error).__name__} {error.code}"
    return "done"


if __name__ == "__main__":
    print(main(*sys.argv[1:]), flush=True)
