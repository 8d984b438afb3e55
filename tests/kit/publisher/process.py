"""A publisher in a separate process: it publishes until the topic holds ROWS rows, and prints how it ended.

Prints "open SEQ" when it is open, then "done", or the branch and code of the error that ended it.
"""

from millrace.errors import MillraceError
from tests.kit.publisher.rig import Rig

BATCH_ROWS = 7  # batches end at every place of source transactions of three rows
FIRST_ROWS = 3  # every second Kafka transaction has two batches; this one is the first


def main(arguments: list[str]) -> int:
    """BOOTSTRAP TOPIC EPOCH ROWS. Returns 0."""
    print(_publish(*arguments), flush=True)
    return 0


def _publish(bootstrap: str, topic: str, epoch: str, rows: str) -> str:
    rig = Rig(bootstrap, topic)
    try:
        publisher = rig.open(int(epoch))
        print("open", publisher.progress.seq, flush=True)
        stream = rig.stream(publisher)
        is_double = False
        while (left := int(rows) - publisher.progress.seq) > 0:
            if is_double and left >= BATCH_ROWS:
                publisher.add(stream.next_batch(FIRST_ROWS))
                publisher.publish(stream.next_batch(BATCH_ROWS - FIRST_ROWS))
            else:
                publisher.publish(stream.next_batch(min(BATCH_ROWS, left)))
            is_double = not is_double
        publisher.close()
    except MillraceError as error:
        return f"{type(error).__name__} {error.code}"
    return "done"
