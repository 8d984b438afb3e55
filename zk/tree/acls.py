"""The ACLs of a cluster's nodes: finds those that differ from the policy, and sets them.

    step                     a crash after it leaves
    1 read all ACLs          nothing
    2 set the ACL of a node  the nodes so far secured, the others as they were; a repetition continues

Guarantees
- Each ACL is set only while it has the version that was read.
- A node that a process creates meanwhile is found: the tree is read again until no ACL differs.
- No live process is locked out: an ephemeral node with another ACL belongs to one that does not use the policy, and
  then nothing is set.
- ``/millrace`` may belong to several clusters with other logins. It differs only if every client may write it.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from millrace.errors import Fatal, Retryable
from millrace.faults import fault_point, register
from millrace.zk.client.access import READING, WORLD, Acl, Policy
from millrace.zk.client.session import Session
from millrace.zk.tree.paths import ROOT, Tree

PASSES_MAX = 5  # a pass finds only what was created during the one before it
NAMED_MAX = 20  # of the paths in an error

BETWEEN_NODES = register("acls.between_nodes")


@dataclass(frozen=True, slots=True)
class NodeAcl:
    """A node's ACL as read; ``version`` counts the changes of the ACL."""

    path: str
    acl: Acl
    version: int

    def __str__(self) -> str:
        return f"{self.path} {acl_text(self.acl)}"


def acl_text(acl: Acl) -> str:
    """The ACL as ZooKeeper's command line writes it."""
    return ",".join(map(str, sorted(acl)))


def read_acls(session: Session, tree: Tree) -> Iterator[NodeAcl]:
    """The ACL of ``/millrace`` and of each node of the cluster, parents first."""
    for path in (ROOT, *_below(session, tree.root)):
        found = session.acl(path)
        if found is not None:
            yield NodeAcl(path, *found)


def _below(session: Session, path: str) -> Iterator[str]:
    yield path
    for name in session.children(path):
        yield from _below(session, f"{path}/{name}")


def differing(nodes: Iterable[NodeAcl], policy: Policy) -> list[NodeAcl]:
    """The nodes whose ACL is not the policy's."""
    return [
        node
        for node in nodes
        if (is_world_writable(node.acl) if node.path == ROOT else node.acl != policy.acl)
        and node.acl != policy.acl
    ]


def is_world_writable(acl: Acl) -> bool:
    """Whether a client without a login may do more than read."""
    return any(grant.identity == WORLD and grant.permissions != READING for grant in acl)


def secure(session: Session, tree: Tree, policy: Policy) -> int:
    """Set the policy's ACL wherever it differs; returns the number of nodes that were changed.

    Fatal MR-7031 when a running process does not use the policy; MR-7030 when one creates such nodes faster.
    """
    changed = 0
    for _ in range(PASSES_MAX):
        wrong = differing(read_acls(session, tree), policy)
        if not wrong:
            return changed
        _check_processes(session, wrong)
        for node in wrong:
            try:
                session.set_acl(node.path, policy.acl, version=node.version)
            except Retryable as error:
                if error.code != "MR-4007":  # changed or deleted in between: the next pass decides
                    raise
                continue
            changed += 1
            fault_point(BETWEEN_NODES)
    raise not_secured(differing(read_acls(session, tree), policy))


def not_secured(nodes: list[NodeAcl]) -> Fatal:
    """The error that counts and names nodes whose ACL differs."""
    named = ", ".join(node.path for node in nodes[:NAMED_MAX])
    more = f", and {len(nodes) - NAMED_MAX} more" if len(nodes) > NAMED_MAX else ""
    return Fatal("MR-7030", f"nodes with another ACL than configured: {len(nodes)}: {named}{more}")


def _check_processes(session: Session, nodes: list[NodeAcl]) -> None:
    found = [(node.path, session.get(node.path)) for node in nodes]
    live = [path for path, node in found if node is not None and node.ephemeral_owner]
    if live:
        raise Fatal(
            "MR-7031",
            f"running processes created nodes with another ACL: {', '.join(live[:NAMED_MAX])}",
        )
