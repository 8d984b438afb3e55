"""Queues records with headers for many partitions, in a compiled loop over librdkafka's ``rd_kafka_produceva``.

The bulk call of ``drivers.kafka.bulk`` takes no headers. The binding's ``produce`` takes 4 to 9 µs of CPU for a record
with five headers, this loop 2.5 µs, and without the GIL (docs/decisions/published-topics.md).

    rd_kafka_vu_t, 72 bytes, 64-bit       one argument; 5 arguments and one per header are filled again for each record
         0  int32  type of the argument   RKT 2, PARTITION 3, VALUE 4, KEY 5, MSGFLAGS 7, HEADER 9
         8  union  RKT: pointer; PARTITION, MSGFLAGS: int32; VALUE, KEY: pointer, size; HEADER: name, value, size

The same tested versions of the binding as there (``bulk.bare_client``); otherwise the producer queues one by one.

Guarantees: pointers are only made of slices inside the buffer (else Fatal MR-9001); librdkafka copies before the call
returns. Numbers in headers are their decimal digits.
Not done here: waiting for room in the queue.
"""

import ctypes
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeAlias, cast

import numpy as np
from llvmlite import ir
from numba import types
from numba.core.base import BaseContext
from numba.core.typing.templates import Signature
from numba.extending import intrinsic
from numpy.typing import NDArray

from millrace.compiled import IS_INTERPRETED, kernel_compiler
from millrace.drivers.kafka.bulk import BareClient, Bounds, Octets, Refusal, check_bounds

TOPIC, PARTITION, KEY_START, KEY_END, VALUE_START, VALUE_END, NUMBERS = range(7)
_DIGITS_MAX = 20  # of a number of 64 bits, with its sign
_ARGUMENT_WORDS = 9  # 72 bytes
_RKT, _PARTITION, _VALUE, _KEY, _FLAGS, _HEADER = 2, 3, 4, 5, 7, 9
_HEADERS = 5  # the first argument that is a header
_COPY = 0x2  # RD_KAFKA_MSG_F_COPY

_FUNCTION = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64, ctypes.c_int64, ctypes.c_int64)

Header: TypeAlias = tuple[str, str | bytes | None]  # the binding's type
Words: TypeAlias = NDArray[np.int64]
compiled = kernel_compiler("kafka", Path(__file__))


@dataclass(frozen=True, slots=True)
class HeaderedRecords:
    """Records for several partitions.

    ``lines``, int64: TOPIC (its number in ``topics``), PARTITION, KEY_START (-1: no key), KEY_END, VALUE_START,
    VALUE_END (-1: no value), and from NUMBERS on a number for each of ``counters``, headers that differ per record.
    ``constants`` are headers of each record, before the others. ``others``: names of headers of which a record has one
    or none, after the counters. Lines then have three more numbers: which (-1: none), start and end of its value.
    ``texts``: the last headers; for each, a line ends with start and end of its value (-1: the record is without it).
    """

    topics: tuple[str, ...]
    buffer: Octets
    lines: NDArray[np.int64]
    constants: tuple[tuple[str, bytes], ...] = ()
    counters: tuple[str, ...] = ()
    others: tuple[str, ...] = ()
    texts: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.lines)

    def part(self, first: int, end: int) -> "HeaderedRecords":
        """Records ``first`` to ``end - 1``."""
        return replace(self, lines=self.lines[first:end])

    @property
    def bounds(self) -> Bounds:
        """The slices of keys and values, as those of ``bulk``; a record without value has an empty one."""
        bounds: Bounds = self.lines[:, KEY_START:NUMBERS].copy()
        bounds[bounds[:, 3] < 0, 2:] = 0
        return bounds

    @property
    def header_bounds(self) -> Bounds:
        """The values of ``others`` and ``texts`` as slices of values without a key."""
        at = NUMBERS + len(self.counters)
        pairs = []
        if self.others:
            pairs.append(self.lines[self.lines[:, at] >= 0, at + 1 : at + 3])
            at += 3
        for text in range(len(self.texts)):
            starts = self.lines[:, at + 2 * text]
            pairs.append(self.lines[starts >= 0, at + 2 * text : at + 2 * text + 2])
        if not pairs:
            return self.bounds[:0]
        slices = np.concatenate(pairs)
        bounds: Bounds = np.full((len(slices), 4), -1, np.int64)
        bounds[:, 2:] = slices
        return bounds

    def headers(self, number: int) -> list[Header]:
        """All headers of one record."""
        end = NUMBERS + len(self.counters)
        counted = zip(self.counters, self.lines[number, NUMBERS:end].tolist(), strict=True)
        headers: list[Header] = [*self.constants]
        headers += ((name, b"%d" % count) for name, count in counted)
        if self.others:
            other, first, stop = self.lines[number, end : end + 3].tolist()
            if other >= 0:
                headers.append((self.others[other], self.buffer[first:stop].tobytes()))
            end += 3
        places = self.lines[number, end:].reshape(-1, 2).tolist()
        for name, (first, stop) in zip(self.texts, places, strict=True):
            if first >= 0:
                headers.append((name, self.buffer[first:stop].tobytes()))
        return headers


def queue_headered(client: BareClient, records: HeaderedRecords) -> Refusal | None:
    """Queue all records in order; the first refusal. No later record is queued."""
    check_bounds(records.buffer, np.concatenate((records.bounds, records.header_bounds)))
    library = client.library
    topics = np.array([client.topic(name) for name in records.topics], np.int64)
    names = [ctypes.create_string_buffer(name.encode()) for name, _ in records.constants]
    names += [ctypes.create_string_buffer(name.encode()) for name in records.counters]
    values = [ctypes.create_string_buffer(value) for _, value in records.constants]
    others, texts = (
        [ctypes.create_string_buffer(name.encode()) for name in optional]
        for optional in (records.others, records.texts)
    )
    optional_count = len(texts) + 1
    arguments = np.zeros((_HEADERS + len(names) + optional_count, _ARGUMENT_WORDS), np.int64)
    arguments[:_HEADERS, 0] = (_RKT, _PARTITION, _VALUE, _KEY, _FLAGS)
    arguments[_HEADERS - 1, 1] = _COPY
    arguments[_HEADERS:, 0] = _HEADER
    arguments[_HEADERS:-optional_count, 1] = [ctypes.addressof(name) for name in names]
    for at, (value, (_, octets)) in enumerate(zip(values, records.constants, strict=True)):
        arguments[_HEADERS + at, 2:4] = ctypes.addressof(value), len(octets)
    digits = np.zeros((max(len(records.counters), 1), _DIGITS_MAX), np.uint8)
    functions = np.array(
        [
            ctypes.cast(getattr(library, name), ctypes.c_void_p).value
            for name in ("rd_kafka_produceva", "rd_kafka_error_code", "rd_kafka_error_destroy")
        ],
        np.int64,
    )
    lines = np.ascontiguousarray(records.lines)
    index, code = _queue(
        functions,
        client.handle,
        topics,
        records.buffer.ctypes.data,
        lines,
        arguments,
        len(values),
        digits,
        np.array([ctypes.addressof(name) for name in others], np.int64),
        np.array([ctypes.addressof(name) for name in texts], np.int64),
    )
    return None if index < 0 else Refusal(int(index), int(code))


def compile_loop() -> None:
    """Compile the loop, or read it from the cache."""
    arguments = np.zeros((_HEADERS + 1, _ARGUMENT_WORDS), np.int64)
    nothing = np.zeros((0, NUMBERS), np.int64)
    digits = np.zeros((1, _DIGITS_MAX), np.uint8)
    words = np.array([0], np.int64)
    _queue(np.zeros(3, np.int64), 0, words, 0, nothing, arguments, 0, digits, words, words[:0])


Build: TypeAlias = Callable[[BaseContext, ir.IRBuilder, object, Sequence[ir.Value]], ir.Value]


def _call(
    _context: object, address: types.Type, first: types.Type, second: types.Type, third: types.Type
) -> tuple[Signature, Build]:
    """Call the C function at ``address`` with three words (a function of fewer ignores the others)."""

    def build(
        _context: BaseContext, builder: ir.IRBuilder, _signature: object, args: Sequence[ir.Value]
    ) -> ir.Value:
        word = ir.IntType(64)
        function = ir.FunctionType(word, [word] * 3)
        return builder.call(builder.inttoptr(args[0], function.as_pointer()), args[1:])

    return types.int64(address, first, second, third), build


def _plain_call(address: int, first: int, second: int, third: int) -> int:
    """The same for plain Python."""
    return int(_FUNCTION(address)(first, second, third))


call = (
    _plain_call if IS_INTERPRETED else cast(Callable[[int, int, int, int], int], intrinsic(_call))
)


@compiled
def _queue(
    functions: Words,
    handle: int,
    topics: Words,
    buffer: int,
    lines: Words,
    arguments: Words,
    constant_count: int,
    digits: NDArray[np.uint8],
    others: Words,
    texts: Words,
) -> tuple[int, int]:
    """The number and error code of the first record that is refused; -1 if none is.

    The last arguments are for a header of ``others`` and for those of ``texts``; records without one have fewer.
    """
    produce, code_of, destroy = functions[0], functions[1], functions[2]
    address, last = arguments.ctypes.data, len(arguments) - 1 - len(texts)
    counters = _HEADERS + constant_count
    other = NUMBERS + last - counters  # of a line
    first_text = other + (3 if len(others) > 0 else 0)
    for index in range(len(lines)):
        arguments[0, 1] = topics[lines[index, TOPIC]]
        arguments[1, 1] = lines[index, PARTITION]
        arguments[2, 1] = arguments[2, 2] = 0
        if lines[index, VALUE_END] >= 0:
            arguments[2, 1] = buffer + lines[index, VALUE_START]
            arguments[2, 2] = lines[index, VALUE_END] - lines[index, VALUE_START]
        arguments[3, 1] = arguments[3, 2] = 0
        if lines[index, KEY_START] >= 0:
            arguments[3, 1] = buffer + lines[index, KEY_START]
            arguments[3, 2] = lines[index, KEY_END] - lines[index, KEY_START]
        for at in range(last - counters):
            start = _put_number(digits[at], lines[index, NUMBERS + at])
            arguments[counters + at, 2] = digits[at].ctypes.data + start
            arguments[counters + at, 3] = _DIGITS_MAX - start
        count = last
        if len(others) > 0 and lines[index, other] >= 0:
            arguments[last, 1] = others[lines[index, other]]
            arguments[last, 2] = buffer + lines[index, other + 1]
            arguments[last, 3] = lines[index, other + 2] - lines[index, other + 1]
            count += 1
        for text in range(len(texts)):
            start, end = (
                lines[index, first_text + 2 * text],
                lines[index, first_text + 2 * text + 1],
            )
            if start >= 0:
                arguments[count, 1] = texts[text]
                arguments[count, 2] = buffer + start
                arguments[count, 3] = end - start
                count += 1
        error = call(produce, handle, address, count)
        if error != 0:
            code = call(code_of, error, 0, 0) & 0xFFFFFFFF
            call(destroy, error, 0, 0)
            return index, code - (1 << 32) if code >= 1 << 31 else code
    return -1, 0


@compiled
def _put_number(out: NDArray[np.uint8], number: int) -> int:
    """Write a number, which is not negative, at the end of ``out``; where its digits begin."""
    at = _DIGITS_MAX
    while True:
        at -= 1
        out[at] = 48 + number % 10
        number //= 10
        if number == 0:
            return at
