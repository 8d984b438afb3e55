"""The partition of a record and its number in it."""

import numpy as np
import pytest

from millrace.consumer.kernel.partitions import assign_numbers, murmur2, partitions_of

# org.apache.kafka.common.utils.UtilsTest.testMurmur2
HASHES = {
    b"21": -973932308,
    b"foobar": -790332482,
    b"a-little-bit-long-string": -985981536,
    b"a-little-bit-longer-string": -1486304829,
    b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    b"abc": 479470107,
}


@pytest.mark.parametrize("key", HASHES, ids=bytes.decode)
def test_hash_of_a_key_is_kafkas(key: bytes) -> None:
    """The values of Kafka's own test; the place in the buffer does not matter."""
    octets = np.frombuffer(b"xyz" + key + b"z", np.uint8)
    hashed = int(murmur2(octets, 3, 3 + len(key)))
    assert hashed == HASHES[key] % 2**32
    chosen = partitions_of(octets, np.array([3, -1]), np.array([3 + len(key), -1]), 8)
    assert chosen.tolist() == [HASHES[key] % 2**31 % 8, -1]


def test_only_records_beyond_the_tail_are_numbered() -> None:
    """By seq, then by part; each partition counts alone; a record of another slot is left out."""
    lines = np.array([(5, 0), (5, 1), (6, 0), (6, 0), (7, 0), (7, 1)])
    places = np.array([0, 0, 1, -1, 0, 0])
    tails = np.array([(5, 0, 41), (0, 0, 0)])
    assert assign_numbers(lines, places, tails).tolist() == [0, 42, 1, 0, 43, 44]
    assert tails.tolist() == [[7, 1, 44], [6, 0, 1]]


@pytest.mark.parametrize("second", [(5, 1), (5, 0), (4, 2)], ids=str)
def test_records_out_of_order_are_not_taken_for_repeated(second: tuple[int, int]) -> None:
    """They would be left out, and be missing."""
    numbers = assign_numbers(
        np.array([(5, 1), second]), np.zeros(2, np.int64), np.zeros((1, 3), np.int64)
    )
    assert numbers.tolist() == [1, -1]
