"""Loads, stores and copies of bytes at any offset of a uint8 array, as single machine instructions.

Offsets are never negative and never wrap around, nothing is checked here unless the checked mode of ``compiled`` is on:
callers compare lengths with the end of the event (reads) or with the room of the output (writes) beforehand.
All loads give int64: unsigned widths below 64 are zero-extended, ``load_i64`` gives the 64 bits as they are.
"""

import sys
from typing import Any

import numpy as np
from numpy.typing import NDArray

from producer.kernel.compiled import CHECKED, INTERPRETED, compiled

Bytes = NDArray[np.uint8]

if sys.byteorder != "little":  # pragma: no cover
    raise ImportError("the kernel is written for little-endian machines")

if INTERPRETED:

    def _span(array: Bytes, offset: int, length: int) -> Bytes:
        if offset < 0 or length < 0 or offset + length > array.size:
            raise IndexError(f"{length} bytes at {offset} of {array.size}")
        return array[offset : offset + length]

    def load_u8(array: Bytes, offset: int) -> int:
        return int(_span(array, offset, 1)[0])

    def load_u16(array: Bytes, offset: int) -> int:
        return int.from_bytes(_span(array, offset, 2).tobytes(), "little")

    def load_u32(array: Bytes, offset: int) -> int:
        return int.from_bytes(_span(array, offset, 4).tobytes(), "little")

    def load_i64(array: Bytes, offset: int) -> int:
        return int.from_bytes(_span(array, offset, 8).tobytes(), "little", signed=True)

    def load_u16be(array: Bytes, offset: int) -> int:
        return int.from_bytes(_span(array, offset, 2).tobytes(), "big")

    def load_u32be(array: Bytes, offset: int) -> int:
        return int.from_bytes(_span(array, offset, 4).tobytes(), "big")

    def store_u8(array: Bytes, offset: int, value: int) -> None:
        _span(array, offset, 1)[0] = int(value) & 0xFF

    def store_i64(array: Bytes, offset: int, value: int) -> None:
        _span(array, offset, 8)[:] = np.frombuffer((int(value) & (2**64 - 1)).to_bytes(8, "little"), np.uint8)

    def copy(target: Bytes, to: int, origin: Bytes, start: int, length: int) -> None:
        _span(target, to, length)[:] = _span(origin, start, length)

    def move(target: Bytes, to: int, start: int, length: int) -> None:
        _span(target, to, length)[:] = _span(target, start, length).copy()

    def double_bits(value: float) -> int:
        return int(np.float64(value).view(np.int64))

else:
    import llvmlite.ir as ll
    from numba.core import cgutils, types
    from numba.extending import intrinsic

    _BYTE_POINTER = ll.IntType(8).as_pointer()

    def _at(context: Any, builder: Any, array_type: Any, array: Any, offset: Any, bits: int) -> Any:
        data = context.make_array(array_type)(context, builder, array).data
        return builder.bitcast(builder.gep(data, [offset]), ll.IntType(bits).as_pointer())

    def _loader(bits: int, swap: bool) -> Any:
        def load(typing_context: Any, array: Any, offset: Any) -> Any:
            def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
                value = builder.load(_at(context, builder, signature.args[0], args[0], args[1], bits))
                value.align = 1
                if swap:
                    value = builder.bswap(value)
                return value if bits == 64 else builder.zext(value, ll.IntType(64))

            return types.int64(array, types.int64), emit

        return intrinsic(load)

    def _storer(bits: int) -> Any:
        def store(typing_context: Any, array: Any, offset: Any, value: Any) -> Any:
            def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
                word = args[2] if bits == 64 else builder.trunc(args[2], ll.IntType(bits))
                builder.store(word, _at(context, builder, signature.args[0], args[0], args[1], bits)).align = 1
                return context.get_dummy_value()

            return types.void(array, types.int64, types.int64), emit

        return intrinsic(store)

    def _copy(typing_context: Any, target: Any, to: Any, origin: Any, start: Any, length: Any) -> Any:
        def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            into = _at(context, builder, signature.args[0], args[0], args[1], 8)
            source = _at(context, builder, signature.args[2], args[2], args[3], 8)
            cgutils.raw_memcpy(builder, into, source, args[4], 1)
            return context.get_dummy_value()

        return types.void(target, types.int64, origin, types.int64, types.int64), emit

    def _move(typing_context: Any, target: Any, to: Any, start: Any, length: Any) -> Any:
        def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            into = _at(context, builder, signature.args[0], args[0], args[1], 8)
            source = _at(context, builder, signature.args[0], args[0], args[2], 8)
            cgutils.raw_memmove(builder, into, source, args[3], 1)
            return context.get_dummy_value()

        return types.void(target, types.int64, types.int64, types.int64), emit

    def _double_bits(typing_context: Any, value: Any) -> Any:
        def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            return builder.bitcast(args[0], ll.IntType(64))

        return types.int64(types.float64), emit

    _load_u8, _load_u16, _load_u32, _load_i64 = _loader(8, False), _loader(16, False), _loader(32, False), _loader(64, False)
    _load_u16be, _load_u32be = _loader(16, True), _loader(32, True)
    _store_u8, _store_i64 = _storer(8), _storer(64)
    _copy_bytes, _move_bytes = intrinsic(_copy), intrinsic(_move)
    double_bits = intrinsic(_double_bits)

    if not CHECKED:
        load_u8, load_u16, load_u32, load_i64 = _load_u8, _load_u16, _load_u32, _load_i64
        load_u16be, load_u32be = _load_u16be, _load_u32be
        store_u8, store_i64 = _store_u8, _store_i64
        copy, move = _copy_bytes, _move_bytes
    else:

        @compiled
        def _check(array: Bytes, offset: int, length: int) -> None:
            if offset < 0 or length < 0 or offset + length > array.size:
                raise IndexError("kernel: bytes outside of the array")

        @compiled
        def load_u8(array: Bytes, offset: int) -> int:
            _check(array, offset, 1)
            return _load_u8(array, offset)

        @compiled
        def load_u16(array: Bytes, offset: int) -> int:
            _check(array, offset, 2)
            return _load_u16(array, offset)

        @compiled
        def load_u32(array: Bytes, offset: int) -> int:
            _check(array, offset, 4)
            return _load_u32(array, offset)

        @compiled
        def load_i64(array: Bytes, offset: int) -> int:
            _check(array, offset, 8)
            return _load_i64(array, offset)

        @compiled
        def load_u16be(array: Bytes, offset: int) -> int:
            _check(array, offset, 2)
            return _load_u16be(array, offset)

        @compiled
        def load_u32be(array: Bytes, offset: int) -> int:
            _check(array, offset, 4)
            return _load_u32be(array, offset)

        @compiled
        def store_u8(array: Bytes, offset: int, value: int) -> None:
            _check(array, offset, 1)
            _store_u8(array, offset, value)

        @compiled
        def store_i64(array: Bytes, offset: int, value: int) -> None:
            _check(array, offset, 8)
            _store_i64(array, offset, value)

        @compiled
        def copy(target: Bytes, to: int, origin: Bytes, start: int, length: int) -> None:
            _check(target, to, length)
            _check(origin, start, length)
            _copy_bytes(target, to, origin, start, length)

        @compiled
        def move(target: Bytes, to: int, start: int, length: int) -> None:
            _check(target, to, length)
            _check(target, start, length)
            _move_bytes(target, to, start, length)
