"""Whether Millrace's own comparison agrees with plain SQL."""

from collections import Counter

from millrace.consumer.compare import Comparison, Ends, Rules, Work, compare_sets
from millrace.consumer.compare.chunk import ChunkResult
from tests.kit.apply.loading import LoadRig
from tests.kit.apply.local import endpoint_of
from tests.kit.ordeal import oracle


def check_compared(rig: LoadRig) -> None:
    """It finds no difference."""
    found = _compare(rig, Rules())
    assert found.difference_count == 0, found.differences


def check_repaired(rig: LoadRig, *, seed: int, damages: int) -> None:
    """It finds each table that is damaged now and no other, and repairs all."""
    damaged = oracle.damage(rig.target, rig.name, seed=seed, count=damages)
    differing: Counter[str] = Counter()

    def note(chunk: ChunkResult) -> None:
        differing[chunk.job.pair.source.table.table] += chunk.part.differing

    _compare(rig, Rules(chunk_rows=100, work=Work(repairs=True), seen=note))
    assert {name for name, count in differing.items() if count} == damaged
    left = oracle.differences(rig.source.primary, rig.target, rig.name)
    assert left == [], "\n".join(left)


def _compare(rig: LoadRig, rules: Rules) -> Comparison:
    ends = Ends(rig.endpoint_of_source(), endpoint_of(rig.target), rig.name)
    return compare_sets(ends, lambda database, _: database == rig.name, rules=rules)
