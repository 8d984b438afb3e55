"""Kernel functions that load little-endian numbers from any offset of a uint8 array. Callers check the length first."""

from millrace.producer.binlog.compiled import Bytes, compiled, int64


@compiled
def u16(buf: Bytes, at: int) -> int:
    return int64(buf[at]) | int64(buf[at + 1]) << 8


@compiled
def u32(buf: Bytes, at: int) -> int:
    return u16(buf, at) | u16(buf, at + 2) << 16


@compiled
def u64(buf: Bytes, at: int) -> int:
    return u32(buf, at) | u32(buf, at + 4) << 32


@compiled
def u56(buf: Bytes, at: int) -> int:
    """Seven bytes."""
    return u32(buf, at) | u16(buf, at + 4) << 32 | int64(buf[at + 6]) << 48
