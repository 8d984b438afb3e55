"""Computes from causality keys which records may be reordered: groups, lanes and levels.

    groups   records joined by a hash that at least one of them holds exclusively (union-find over the whole batch)
    lanes    groups packed into lanes of similar weight: large groups first, the others in runs of neighbors
    bound    groups whose keys an earlier flight still holds; they follow it in its lane
    levels   inside a lane: 0, 1, 2, …; records of one level share no key that one of them holds exclusively, so their
             order does not matter

Results depend only on the arguments: no randomness, no clock, no ``hash()``.
"""

import numpy as np

from millrace.consumer.kernel.compiled import Bytes, Hashes, Ints, compiled, int64
from millrace.consumer.kernel.hashes import EXCLUSIVE

FLIGHT, LANE, HELD = 0, 1, 2  # columns of ``slots``


@compiled
def _root(parents: Ints, node: int) -> int:
    while parents[node] != node:
        parents[node] = parents[parents[node]]
        node = parents[node]
    return node


@compiled
def find_groups(owners: Ints, hashes: Hashes, modes: Bytes, by_hash: Ints, count: int) -> Ints:
    """The group of each of ``count`` records, named by its first record's number. ``by_hash`` sorts ``hashes``."""
    parents = np.arange(count)
    at = 0
    while at < len(by_hash):
        end = at
        exclusive = False
        while end < len(by_hash) and hashes[by_hash[end]] == hashes[by_hash[at]]:
            exclusive |= modes[by_hash[end]] == EXCLUSIVE
            end += 1
        if exclusive:
            first = _root(parents, owners[by_hash[at]])
            for number in range(at + 1, end):
                other = _root(parents, owners[by_hash[number]])
                if other < first:
                    first, other = other, first
                parents[other] = first
        at = end
    for number in range(count):
        parents[number] = _root(parents, number)
    return parents


def pack_lanes(groups: Ints, weights: Ints, lane_count: int, bound: Ints | None = None) -> Ints:
    """The lane of each record. A group that weighs more than an eighth of a lane goes to the lightest lane.

    ``bound``: the lane of each group, -1 if it is free.
    """
    totals = np.bincount(groups, weights, minlength=len(groups)).astype(np.int64)
    share = int(weights.sum()) // lane_count + 1
    lane_of = np.full(len(groups), -1, np.int64) if bound is None else bound
    loads = np.zeros(lane_count, np.int64)
    held = lane_of >= 0
    if held.any():
        loads += np.bincount(lane_of[held], totals[held], minlength=lane_count).astype(np.int64)
    large = np.flatnonzero((totals * 8 > share) & ~held)
    large = large[np.argsort(-totals[large], kind="stable")]
    for group in large:
        lane_of[group] = np.argmin(loads)
        loads[lane_of[group]] += totals[group]
    filled: Ints = _fill_lanes(groups, totals, lane_of, loads, share)
    return filled


@compiled
def _fill_lanes(groups: Ints, totals: Ints, lane_of: Ints, loads: Ints, share: int) -> Ints:
    """Assign the small groups in the order of their first records, one lane after the other."""
    lane = 0
    lanes = np.empty(len(groups), np.int64)
    for number in range(len(groups)):
        group = groups[number]
        if lane_of[group] < 0:
            while lane < len(loads) - 1 and loads[lane] >= share:
                lane += 1
            lane_of[group] = lane
            loads[lane] += totals[group]
        lanes[number] = lane_of[group]
    return lanes


@compiled
def find_levels(owners: Ints, hashes: Hashes, modes: Bytes, by_hash: Ints, count: int) -> Ints:
    """The level of each of ``count`` records in seq order; the entries of one record are adjacent."""
    dense = np.empty(len(by_hash), np.int64)
    last = -1
    for place in range(len(by_hash)):
        if place == 0 or hashes[by_hash[place]] != hashes[by_hash[place - 1]]:
            last += 1
        dense[by_hash[place]] = last
    exclusive = np.full(last + 1, -1, np.int64)
    shared = np.full(last + 1, -1, np.int64)
    levels = np.zeros(count, np.int64)
    at = 0
    while at < len(owners):
        end = at
        level = int64(0)
        while end < len(owners) and owners[end] == owners[at]:
            key = dense[end]
            level = max(level, exclusive[key] + 1)
            if modes[end] == EXCLUSIVE:
                level = max(level, shared[key] + 1)
            end += 1
        for number in range(at, end):
            key = dense[number]
            if modes[number] == EXCLUSIVE:
                exclusive[key] = level
            else:
                shared[key] = max(shared[key], level)
        levels[owners[at]] = level
        at = end
    return levels


@compiled
def bind_groups(
    owners: Ints,
    hashes: Hashes,
    modes: Bytes,
    groups: Ints,
    table: Hashes,
    slots: Ints,
    done_flight: int,
    bound: Ints,
) -> bool:
    """Bind groups to the lanes that hold their keys in earlier flights; False if one needs two lanes.

    ``table`` and ``slots`` are as ``hold_keys`` left them. ``bound[group]`` is set to the lane.
    """
    size = np.uint64(len(table))
    for entry in range(len(owners)):
        place: int = int64(hashes[entry] % size)
        while slots[place, FLIGHT] > 0 and table[place] != hashes[entry]:
            place = place + 1 if place + 1 < len(table) else 0
        if slots[place, FLIGHT] <= done_flight:
            continue
        if modes[entry] != EXCLUSIVE and slots[place, HELD] != EXCLUSIVE:
            continue
        lane, group = slots[place, LANE], groups[owners[entry]]
        if lane < 0 or (bound[group] >= 0 and bound[group] != lane):
            return False
        bound[group] = lane
    return True


@compiled
def hold_keys(
    owners: Ints,
    hashes: Hashes,
    modes: Bytes,
    lanes: Ints,
    flight: int,
    table: Hashes,
    slots: Ints,
    done_flight: int,
) -> None:
    """Note the lane of every key of a flight. ``lanes``: of each owner. ``table`` must have room for all keys.

    A line of ``slots`` is (flight, lane or -1 for several, mode); flight 0 is free. Flights count from 1.
    """
    size = np.uint64(len(table))
    for entry in range(len(owners)):
        place: int = int64(hashes[entry] % size)
        while slots[place, FLIGHT] > 0 and table[place] != hashes[entry]:
            place = place + 1 if place + 1 < len(table) else 0
        lane = lanes[owners[entry]]
        if slots[place, FLIGHT] <= done_flight:
            table[place] = hashes[entry]
            slots[place, LANE], slots[place, HELD] = lane, modes[entry]
        else:
            if slots[place, LANE] != lane:
                slots[place, LANE] = -1
            if modes[entry] == EXCLUSIVE:
                slots[place, HELD] = EXCLUSIVE
        slots[place, FLIGHT] = flight
