"""The epoch of a lease: a number that never goes down, whatever happens to sessions, leaders and the ensemble.

The czxid of the owner node is the transaction that made it: the ensemble numbers all its changes in one rising
order. A rebuilt ensemble begins anew from small numbers, so the generation that stands in the cluster's own node
goes above it; an operator raises it after a rebuild (``millrace cluster raise-generation``). An epoch must fit a
signed 64-bit integer, in Avro and in the target's fence row:

      bit 62      52 51              32 31              0
     | generation  | ZAB leader epoch  | counter         |
        11 bits        20 bits             32 bits           11 + 20 + 32 = 63

czxid is 64 bits by itself (32 + 32); a leader epoch beyond a million means as many leader elections and is refused
(MR-4005), never cut. A rebuilt ensemble whose generation nobody raised is found out by whoever fences: the topic or
target names a greater epoch, and the supervisor blocks the task with MR-4006.
"""

from millrace.errors import Fatal
from zk.session import Session
from zk.tree import Tree, decode, encode

COUNTER_BITS = 32
LEADER_BITS = 20
GENERATION_BITS = 11
GENERATION_MAX = 2**GENERATION_BITS - 1


def epoch_of(czxid: int, *, generation: int) -> int:
    """The epoch of a node made by ``czxid``; Fatal MR-4005 when a part does not fit."""
    leader, counter = divmod(czxid, 1 << COUNTER_BITS)
    if czxid <= 0 or leader >= 1 << LEADER_BITS or not 0 < generation <= GENERATION_MAX:
        raise Fatal("MR-4005", f"czxid {czxid:#x} under generation {generation} does not fit")
    return (generation << (LEADER_BITS + COUNTER_BITS)) | (leader << COUNTER_BITS) | counter


def generation_of(session: Session, tree: Tree) -> int:
    """The ensemble's generation as it stands, or Fatal MR-4011."""
    node = session.get(tree.root)
    generation = decode(node.content, tree.root).get("generation") if node else None
    if not isinstance(generation, int) or isinstance(generation, bool):
        raise Fatal("MR-4011", f"{tree.root} has no generation")
    return generation


def raise_generation(session: Session, tree: Tree) -> int:
    """One more; the new generation. Leases taken from now on are above all before."""
    node = session.get(tree.root)
    generation = generation_of(session, tree) + 1
    if generation > GENERATION_MAX:
        raise Fatal("MR-4005", f"the generation is {GENERATION_MAX} already")
    assert node is not None, "generation_of read it"
    session.put(tree.root, encode({"generation": generation}), version=node.version)
    return generation
