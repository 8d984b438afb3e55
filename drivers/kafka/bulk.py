"""Queues a batch of slices in one call of librdkafka's own bulk function, without the GIL and without its Python
binding.

With the binding's ``produce``, the Python loop takes most of the time and holds the GIL that the converter needs: 0.5
million records of 200 B per second on two cores with the broker on the same machine, against 1.1 to 2.3 million with
``rd_kafka_produce_batch``. docs/decisions/publisher.md lists the other options that were tried.

    rd_kafka_message_t, 72 bytes, 64-bit                    value
         0  int32   err         the outcome per record      0
         8  void *  rkt
        16  int32   partition
        24  void *  payload     into the batch's buffer     always
        32  size_t  len
        40  void *  key         into the batch's buffer     0: no key
        48  size_t  key_len
        56  int64   offset
        64  void *  _private    the binding's callback      0: none

The binding keeps its ``rd_kafka_t *`` as the first field after the object header. That is not part of its interface. So
``bare_client`` finds it only for tested versions (``TESTED``) and on a CPython with the usual object header. The
client at that address must also report its own name. Otherwise the caller uses the binding's ``produce``, and
``Unavailable`` reports the reason.

Guarantees: pointers are only made of slices inside the buffer (else Fatal MR-9001); librdkafka copies before the call
returns.
Not done here: waiting for room in the queue.
"""

import ctypes
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from millrace.errors import Fatal

Octets = NDArray[np.uint8]
# (n, 4): key_start, key_end, value_start, value_end; key_start -1: no key
Bounds = NDArray[np.int64]
TESTED = frozenset({"2.16.1"})  # versions of the binding

_MESSAGE = np.dtype(
    {
        "names": [
            "err",
            "rkt",
            "partition",
            "payload",
            "len",
            "key",
            "key_len",
            "offset",
            "private",
        ],
        "formats": ["i4", "u8", "i4", "u8", "u8", "u8", "u8", "i8", "u8"],
        "offsets": [0, 8, 16, 24, 32, 40, 48, 56, 64],
        "itemsize": 72,
    }
)
_COPY = 0x2  # RD_KAFKA_MSG_F_COPY
_OBJECT_HEADER_BYTES = 16


@dataclass(frozen=True, slots=True)
class Refusal:
    """The first record that was not queued, with librdkafka's error code."""

    index: int
    code: int


@dataclass(frozen=True, slots=True)
class Unavailable:
    """Why the bulk call cannot be used here; records are then queued one by one."""

    reason: str


class BareClient:
    """The client of one producer instance in librdkafka. ``close`` it before the instance is dropped."""

    def __init__(self, library: ctypes.CDLL, handle: int) -> None:
        self.library, self.handle = library, handle
        self._topics: dict[str, int] = {}

    def topic(self, name: str) -> int:
        """librdkafka's handle of a topic."""
        handle = self._topics.get(name)
        if handle is None:
            handle = self._topics[name] = int(
                self.library.rd_kafka_topic_new(self.handle, name.encode(), None)
            )
        return handle

    def close(self) -> None:
        topics, self._topics = self._topics, {}
        for handle in topics.values():
            self.library.rd_kafka_topic_destroy(handle)


def bare_client(
    binding: object, *, package: Path, version: str, name: str
) -> BareClient | Unavailable:
    """The client in the binding's producer object. ``name``: the beginning of the client's name."""
    if version not in TESTED:
        tested = ", ".join(sorted(TESTED))
        return Unavailable(
            f"confluent-kafka {version} is not tested with the bulk call; tested: {tested}"
        )
    if (library := _library(package)) is None:
        return Unavailable(f"{package} does not contain librdkafka")
    if not _has_usual_objects():
        return Unavailable(
            f"{sys.implementation.name} {sys.version.split()[0]} has another object layout"
        )
    handle = ctypes.c_void_p.from_address(id(binding) + _OBJECT_HEADER_BYTES).value
    if not handle or not library.rd_kafka_name(handle).startswith(name.encode()):
        return Unavailable("the client was not found in its Python object")
    return BareClient(library, handle)


def queue_batch(
    client: BareClient, topic: str, partition: int, buffer: Octets, bounds: Bounds
) -> Refusal | None:
    """Queue all slices in order; the first refusal. Later records may be queued: discard the instance."""
    messages = _messages(buffer, bounds)
    queued = client.library.rd_kafka_produce_batch(
        client.topic(topic), partition, _COPY, messages.ctypes.data, len(messages)
    )
    if queued == len(messages):
        return None
    index = int((messages["err"] != 0).argmax())
    return Refusal(index, int(messages["err"][index]))


def _messages(buffer: Octets, bounds: Bounds) -> NDArray[np.void]:
    check_bounds(buffer, bounds)
    has_key = bounds[:, 0] >= 0
    key_start = np.where(has_key, bounds[:, 0], 0)
    key_end = np.where(has_key, bounds[:, 1], 0)
    base = buffer.ctypes.data
    messages = np.zeros(len(bounds), _MESSAGE)
    messages["payload"] = base + bounds[:, 2]
    messages["len"] = bounds[:, 3] - bounds[:, 2]
    messages["key"] = np.where(has_key, base + key_start, 0)
    messages["key_len"] = key_end - key_start
    return messages


def check_bounds(buffer: Octets, bounds: Bounds) -> None:
    """Fatal MR-9001 if a slice of a key or of a value is not inside the buffer."""
    if not buffer.flags.c_contiguous or buffer.dtype != np.uint8:
        raise Fatal("MR-9001", "a batch's buffer is not contiguous bytes")
    key_start = np.maximum(bounds[:, 0], 0)
    key_end = np.where(bounds[:, 0] < 0, 0, bounds[:, 1])
    starts = np.concatenate((key_start, bounds[:, 2]))
    ends = np.concatenate((key_end, bounds[:, 3]))
    if starts.min() < 0 or (ends < starts).any() or ends.max() > len(buffer):
        raise Fatal("MR-9001", "a batch's bounds are outside its buffer")


def _has_usual_objects() -> bool:
    return (
        sys.implementation.name == "cpython"
        and not hasattr(sys, "gettotalrefcount")
        and getattr(sys, "_is_gil_enabled", lambda: True)()
        and sys.maxsize == 2**63 - 1
    )


def _library(package: Path) -> ctypes.CDLL | None:
    """The librdkafka of the binding's package. It is loaded already, so this is the same library."""
    paths = sorted((package.parent / f"{package.name}.libs").glob("librdkafka-*.so*"))
    if len(paths) != 1:
        return None
    library = ctypes.CDLL(str(paths[0]))
    library.rd_kafka_name.argtypes = [ctypes.c_void_p]
    library.rd_kafka_name.restype = ctypes.c_char_p
    library.rd_kafka_topic_new.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
    library.rd_kafka_topic_new.restype = ctypes.c_void_p
    library.rd_kafka_topic_destroy.argtypes = [ctypes.c_void_p]
    library.rd_kafka_topic_destroy.restype = None
    library.rd_kafka_produce_batch.argtypes = [
        ctypes.c_void_p,
        ctypes.c_int32,
        ctypes.c_int,
        ctypes.c_void_p,
        ctypes.c_int,
    ]
    library.rd_kafka_produce_batch.restype = ctypes.c_int
    return library
