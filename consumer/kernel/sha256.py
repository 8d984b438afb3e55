"""SHA-256 and HMAC of many short messages at once (FIPS 180-4, RFC 2104).

Messages are computed side by side, in up to ``LANES`` lanes: each step of a round is a loop over the lanes, which the
compiler turns into vector instructions. A state and a schedule have a line for each word and a column for each lane.
"""

import hashlib

import numpy as np

from millrace.consumer.kernel.compiled import Bytes, Ints, Words, compiled, compiled_plain, int64

LANES = 128
BLOCK_BYTES, DIGEST_BYTES = 64, 32
WORDS, SCHEDULE, ROUNDS = 8, 16, 64


def _roots(power: int) -> list[int]:
    """The first 32 bits after the point of the square or cube roots of the first 64 primes."""
    primes = [number for number in range(2, 312) if all(number % one for one in range(2, number))]
    roots = []
    for prime in primes:
        scaled, low, high = prime << 32 * power, 0, 1 << 40
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if middle**power <= scaled else (low, middle)
        roots.append(low & 0xFFFFFFFF)
    return roots


_CONSTANTS = np.array(_roots(3), np.uint32)
_INITIAL = np.array(_roots(2)[:WORDS], np.uint32)


@compiled_plain
def _expand(words: Words, number: int, count: int) -> None:
    """The next word of the schedule in the place of the one 16 words before it."""
    # an index that can be negative would add a branch for each lane
    old, near = np.uint64((number & 15) * LANES), np.uint64(((number + 1) & 15) * LANES)
    middle, late = np.uint64(((number + 9) & 15) * LANES), np.uint64(((number + 14) & 15) * LANES)
    for lane in range(np.uint64(count)):
        x, y = words[near + lane], words[late + lane]
        small = np.uint32(
            (x >> np.uint32(7) | x << np.uint32(25))
            ^ (x >> np.uint32(18) | x << np.uint32(14))
            ^ (x >> np.uint32(3))
        )
        large = np.uint32(
            (y >> np.uint32(17) | y << np.uint32(15))
            ^ (y >> np.uint32(19) | y << np.uint32(13))
            ^ (y >> np.uint32(10))
        )
        words[old + lane] = np.uint32(words[old + lane] + small + words[middle + lane] + large)


@compiled_plain
def _step(
    a: np.uint32,
    b: np.uint32,
    c: np.uint32,
    d: np.uint32,
    e: np.uint32,
    f: np.uint32,
    g: np.uint32,
    h: np.uint32,
    word: np.uint32,
    constant: np.uint32,
) -> tuple[np.uint32, np.uint32]:
    """One round: the new ``e``, which replaces ``d``, and the new ``a``, which replaces ``h``."""
    large = np.uint32(
        (e >> np.uint32(6) | e << np.uint32(26))
        ^ (e >> np.uint32(11) | e << np.uint32(21))
        ^ (e >> np.uint32(25) | e << np.uint32(7))
    )
    first = np.uint32(h + large + np.uint32((e & f) ^ (~e & g)) + constant + word)
    small = np.uint32(
        (a >> np.uint32(2) | a << np.uint32(30))
        ^ (a >> np.uint32(13) | a << np.uint32(19))
        ^ (a >> np.uint32(22) | a << np.uint32(10))
    )
    majority = np.uint32((a & b) ^ (a & c) ^ (b & c))
    return np.uint32(d + first), np.uint32(first + small + majority)


@compiled_plain
def _eight_rounds(work: Words, words: Words, number: int, count: int) -> None:
    """Eight rounds, after which each letter is in its own line again."""
    k0, k1, k2, k3 = (
        _CONSTANTS[number],
        _CONSTANTS[number + 1],
        _CONSTANTS[number + 2],
        _CONSTANTS[number + 3],
    )
    k4, k5, k6, k7 = (
        _CONSTANTS[number + 4],
        _CONSTANTS[number + 5],
        _CONSTANTS[number + 6],
        _CONSTANTS[number + 7],
    )
    word = np.uint64((number & 15) * LANES)
    for lane in range(np.uint64(count)):
        a = work[lane]
        b = work[np.uint64(1 * LANES) + lane]
        c = work[np.uint64(2 * LANES) + lane]
        d = work[np.uint64(3 * LANES) + lane]
        e = work[np.uint64(4 * LANES) + lane]
        f = work[np.uint64(5 * LANES) + lane]
        g = work[np.uint64(6 * LANES) + lane]
        h = work[np.uint64(7 * LANES) + lane]
        d, h = _step(a, b, c, d, e, f, g, h, words[word + lane], k0)
        c, g = _step(h, a, b, c, d, e, f, g, words[word + np.uint64(1 * LANES) + lane], k1)
        b, f = _step(g, h, a, b, c, d, e, f, words[word + np.uint64(2 * LANES) + lane], k2)
        a, e = _step(f, g, h, a, b, c, d, e, words[word + np.uint64(3 * LANES) + lane], k3)
        h, d = _step(e, f, g, h, a, b, c, d, words[word + np.uint64(4 * LANES) + lane], k4)
        g, c = _step(d, e, f, g, h, a, b, c, words[word + np.uint64(5 * LANES) + lane], k5)
        f, b = _step(c, d, e, f, g, h, a, b, words[word + np.uint64(6 * LANES) + lane], k6)
        e, a = _step(b, c, d, e, f, g, h, a, words[word + np.uint64(7 * LANES) + lane], k7)
        work[lane] = a
        work[np.uint64(1 * LANES) + lane] = b
        work[np.uint64(2 * LANES) + lane] = c
        work[np.uint64(3 * LANES) + lane] = d
        work[np.uint64(4 * LANES) + lane] = e
        work[np.uint64(5 * LANES) + lane] = f
        work[np.uint64(6 * LANES) + lane] = g
        work[np.uint64(7 * LANES) + lane] = h


@compiled_plain
def compress(state: Words, words: Words, work: Words, count: int) -> None:
    """Add a block of each lane to its state. ``words`` has the blocks, and is changed; ``work`` is scratch."""
    for place in range(len(state)):
        work[place] = state[place]
    for number in range(0, ROUNDS, 8):
        if number >= SCHEDULE:
            for place in range(number, number + 8):
                _expand(words, place, count)
        _eight_rounds(work, words, number, count)
    for place in range(len(state)):
        state[place] += work[place]


@compiled_plain
def block_count(size: int) -> int:
    """The blocks of a message, its padding included."""
    return (size + 8) // BLOCK_BYTES + 1


@compiled_plain
def _put_block(
    words: Words, lane: int, data: Bytes, start: int, size: int, block: int, hashed: int
) -> None:
    """Block ``block`` of ``data[start:start + size]`` with its padding. ``hashed``: bytes before the message."""
    left = size - block * BLOCK_BYTES
    at, to = np.uint64(start + block * BLOCK_BYTES), np.uint64(lane)
    whole = max(min(left, BLOCK_BYTES) // 4, 0)
    for _ in range(whole):
        words[to] = np.uint32(
            np.uint32(data[at]) << np.uint32(24)
            | np.uint32(data[at + np.uint64(1)]) << np.uint32(16)
            | np.uint32(data[at + np.uint64(2)]) << np.uint32(8)
            | np.uint32(data[at + np.uint64(3)])
        )
        at += np.uint64(4)
        to += np.uint64(LANES)
    for word in range(whole, SCHEDULE):
        value = np.uint32(0)
        if 0 <= left - 4 * word < 4:
            value = np.uint32(0x80000000) >> np.uint32(8 * (left - 4 * word))
            for place in range(left - 4 * word):
                byte = np.uint32(data[at + np.uint64(place)])
                value |= np.uint32(byte << np.uint32(24 - 8 * place))
        words[to] = value
        to += np.uint64(LANES)
    if block == block_count(size) - 1:
        bits = 8 * (size + hashed)
        words[(SCHEDULE - 2) * LANES + lane] = np.uint32(bits >> int64(32))
        words[(SCHEDULE - 1) * LANES + lane] = np.uint32(bits & int64(0xFFFFFFFF))


@compiled_plain
def _put_hex(out: Bytes, at: int, word: np.uint32) -> None:
    """Eight characters at once: each half byte of the word becomes a byte, the first one the lowest."""
    digits = np.uint64(word)
    digits = (digits >> np.uint64(16) | digits << np.uint64(32)) & np.uint64(0x0000FFFF0000FFFF)
    digits = (digits >> np.uint64(8) | digits << np.uint64(16)) & np.uint64(0x00FF00FF00FF00FF)
    digits = (digits >> np.uint64(4) | digits << np.uint64(8)) & np.uint64(0x0F0F0F0F0F0F0F0F)
    letters = (digits + np.uint64(0x0606060606060606)) >> np.uint64(4) & np.uint64(
        0x0101010101010101
    )
    digits += np.uint64(0x3030303030303030) + letters * np.uint64(39)
    to = np.uint64(at)
    for _ in range(8):
        out[to] = np.uint8(digits)
        digits >>= np.uint64(8)
        to += np.uint64(1)


@compiled
def put_hmacs(messages: Bytes, jobs: Ints, order: Ints, pads: Words, out: Bytes) -> None:
    """Write the HMAC of each job to ``out`` as 64 hex characters.

    A line of ``jobs``: start and size of the message, key, where in ``out``. ``order`` has the jobs by ``block_count``.
    ``pads[key]``: the states after the inner and the outer pad of the key.
    """
    state, words = np.zeros(WORDS * LANES, np.uint32), np.zeros(SCHEDULE * LANES, np.uint32)
    work = np.zeros(WORDS * LANES, np.uint32)
    first = 0
    while first < len(order):
        blocks, count = block_count(jobs[order[first], 1]), 0
        while (
            count < LANES
            and first + count < len(order)
            and block_count(jobs[order[first + count], 1]) == blocks
        ):
            key = jobs[order[first + count], 2]
            for word in range(WORDS):
                state[word * LANES + count] = pads[key, 0, word]
            count += 1
        for block in range(blocks):
            for lane in range(count):
                job = jobs[order[first + lane]]
                _put_block(words, lane, messages, job[0], job[1], block, BLOCK_BYTES)
            compress(state, words, work, count)
        words[:] = 0
        words[: WORDS * LANES] = state
        for lane in range(count):
            key = jobs[order[first + lane], 2]
            for word in range(WORDS):
                state[word * LANES + lane] = pads[key, 1, word]
            words[WORDS * LANES + lane] = np.uint32(0x80000000)
            words[(SCHEDULE - 1) * LANES + lane] = 8 * (BLOCK_BYTES + DIGEST_BYTES)
        compress(state, words, work, count)
        for lane in range(count):
            at = jobs[order[first + lane], 3]
            for word in range(WORDS):
                _put_hex(out, at + 8 * word, state[word * LANES + lane])
        first += count


def padded_states(key: bytes) -> Words:
    """The states after the inner and the outer pad of an HMAC's key, one line each."""
    if len(key) > BLOCK_BYTES:
        key = hashlib.sha256(key).digest()
    states = np.empty((2, WORDS), np.uint32)
    for line, byte in enumerate((0x36, 0x5C)):
        padded = bytes(one ^ byte for one in key.ljust(BLOCK_BYTES, b"\0"))
        state, words = np.zeros((WORDS, LANES), np.uint32), np.zeros((SCHEDULE, LANES), np.uint32)
        state[:, 0], words[:, 0] = _INITIAL, np.frombuffer(padded, ">u4")
        compress(state.reshape(-1), words.reshape(-1), np.zeros(WORDS * LANES, np.uint32), 1)
        states[line] = state[:, 0]
    return states
