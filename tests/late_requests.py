"""A late duplicate of an EndTxn request, as a network may deliver it: what Kafka's repaired protocol is there for.

librdkafka speaks the older one, in which a request names a producer id and epoch, but not a transaction.
"""

import logging
import re
import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager

from tests.publisher_rig import Rig

_END_TXN = 26


class Identity(logging.Handler):
    """The producer id and epoch of the instance that was made last, as librdkafka's debug log tells them."""

    def __init__(self) -> None:
        super().__init__()
        self.found = (0, 0)

    def emit(self, record: logging.LogRecord) -> None:
        """Every line of the log."""
        if match := re.search(r"PID\{Id:(\d+),Epoch:(\d+)\}", record.getMessage()):
            self.found = (int(match[1]), int(match[2]))


@contextmanager
def listening(rig: Rig) -> Iterator[Identity]:
    """Listens to the client's log of every publisher that ``rig`` opens."""
    rig.client = {"debug": "eos"}
    logger, handler = logging.getLogger("librdkafka"), Identity()
    logger.setLevel(logging.DEBUG)
    logger.addHandler(handler)
    yield handler
    logger.removeHandler(handler)
    logger.setLevel(logging.NOTSET)


def late_end(rig: Rig, instance: tuple[int, int], *, commit: bool) -> int:
    """Send EndTxn (version 1) for what ``instance`` has open now; the broker's error code."""
    host, port = rig.bootstrap.split(":")
    name = rig.config(7).transactional_id.encode()
    header = struct.pack(">hhih", _END_TXN, 1, 7, 4) + b"late"
    body = struct.pack(">h", len(name)) + name + struct.pack(">qh?", *instance, commit)
    with socket.create_connection((host, int(port))) as connection:
        connection.sendall(struct.pack(">i", len(header) + len(body)) + header + body)
        answer = connection.makefile("rb")
        size = struct.unpack(">i", answer.read(4))[0]
        code: int = struct.unpack(">h", answer.read(size)[8:10])[0]
    return code
