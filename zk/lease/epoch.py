"""The epoch of a lease: each lease of a task has a greater one than the lease before.

An epoch contains the czxid of the owner node, the number of the ZooKeeper transaction that created it. ZooKeeper
numbers all changes in rising order, but a rebuilt ensemble starts again from small numbers. So the high bits hold the
generation, which is stored in the cluster's own node. The operator raises it after a rebuild
(``millrace cluster raise-generation``). An epoch fits a signed 64-bit integer, for Avro and the target's fence row:

      bit 62      52 51              32 31              0
     | generation  | ZAB leader epoch  | counter         |
        11 bits        20 bits             32 bits           11 + 20 + 32 = 63

A czxid has 32 + 32 bits. A leader epoch above 2^20 (a million leader elections) is refused with MR-4005, never cut.
If the operator forgets to raise the generation, the topic or the target knows a greater epoch and fences the task. The
supervisor then blocks it with MR-4006.
"""

from millrace.errors import Fatal
from millrace.zk.client.session import Session
from millrace.zk.tree.paths import Tree, decode, encode

COUNTER_BITS = 32
LEADER_BITS = 20
GENERATION_BITS = 11
GENERATION_MAX = 2**GENERATION_BITS - 1


def epoch_of(czxid: int, *, generation: int) -> int:
    """The epoch of a node that ``czxid`` created. Fatal MR-4005 when a part does not fit."""
    leader, counter = divmod(czxid, 1 << COUNTER_BITS)
    if czxid <= 0 or leader >= 1 << LEADER_BITS or not 0 < generation <= GENERATION_MAX:
        raise Fatal("MR-4005", f"czxid {czxid:#x} under generation {generation} does not fit")
    return (generation << (LEADER_BITS + COUNTER_BITS)) | (leader << COUNTER_BITS) | counter


def generation_of(session: Session, tree: Tree) -> int:
    """The cluster's generation. Fatal MR-4011 when its node is missing or malformed."""
    node = session.get(tree.root)
    generation = decode(node.content, tree.root).get("generation") if node else None
    if not isinstance(generation, int) or isinstance(generation, bool):
        raise Fatal("MR-4011", f"{tree.root} has no generation")
    return generation


def raise_generation(session: Session, tree: Tree) -> int:
    """Add one and return the new generation. Later leases have greater epochs than all earlier ones."""
    node = session.get(tree.root)
    generation = generation_of(session, tree) + 1
    if generation > GENERATION_MAX:
        raise Fatal("MR-4005", f"the generation is {GENERATION_MAX} already")
    assert node is not None, "generation_of raises without the node"
    session.put(tree.root, encode({"generation": generation}), version=node.version)
    return generation
