"""``memory`` as LLVM instructions: unaligned loads and stores, memcpy and memmove, all unchecked. See there."""

# numba passes all its arguments, used or not:
# ruff: noqa: ARG001

from typing import Any

import llvmlite.ir as ll
import numba.core.cgutils
from numba.core import types
from numba.extending import intrinsic

cgutils: Any = numba.core.cgutils


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
            builder.store(
                word, _at(context, builder, signature.args[0], args[0], args[1], bits)
            ).align = 1
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


load_u8, load_u16, load_u32 = _loader(8, False), _loader(16, False), _loader(32, False)
load_i64 = _loader(64, False)
load_u16be, load_u32be = _loader(16, True), _loader(32, True)
store_u8, store_i64 = _storer(8), _storer(64)
copy, move = intrinsic(_copy), intrinsic(_move)


def _signed(typing_context: Any, value: Any) -> Any:
    def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return context.cast(builder, args[0], signature.args[0], types.int64)

    return types.int64(value), emit


signed = intrinsic(_signed)
