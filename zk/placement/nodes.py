"""The nodes of placement, read and written: assignments, drained workers, wishes. Pure: no session.

    assignments/<task>   {"format":1,"worker":"w1"}                                at home
                         {"format":1,"worker":"w2","home":"w1"}                    away from home
                         {"format":1,"worker":"","home":"w1","why":"w2 is full …"}    no worker may take it
    drained/<worker>     {"format":1,"by":"ann@host"}
    wishes/<unit>        {"format":1,"worker":"w2","by":"ann@host"}

Guarantees: a node that can't be read is ignored and logged; the scheduler overwrites such an assignment.
"""

from collections.abc import Mapping

from millrace.errors import Fatal
from millrace.log import get_logger
from millrace.zk.client.session import Node
from millrace.zk.placement.assignment import Assignment
from millrace.zk.tree.paths import decode, encode, text_field

log = get_logger("zk.placement.nodes")


def assignments_of(nodes: Mapping[str, Node]) -> dict[str, Assignment]:
    """Task → its assignment."""
    found: dict[str, Assignment] = {}
    for task, node in nodes.items():
        path = f"assignments/{task}"
        try:
            worker, plain = text_field(node.content, path, "worker"), decode(node.content, path)
        except Fatal as error:
            log.warning("an assignment is ignored", error=error)
            continue
        found[task] = Assignment(worker, str(plain.get("home", worker)), str(plain.get("why", "")))
    return found


def workers_of(nodes: Mapping[str, Node]) -> dict[str, str]:
    """Task → the worker that should own it; "" while none may."""
    return {task: found.worker for task, found in assignments_of(nodes).items()}


def assignment_content(assignment: Assignment) -> bytes:
    """The content of an assignment node."""
    plain: dict[str, object] = {"worker": assignment.worker}
    if assignment.home and assignment.home != assignment.worker:
        plain["home"] = assignment.home
    if assignment.why:
        plain["why"] = assignment.why
    return encode(plain)


def drain_content(*, by: str) -> bytes:
    """The content of a node below ``drained``."""
    return encode({"by": by})


def wish_content(worker: str, *, by: str) -> bytes:
    """The content of a node below ``wishes``."""
    return encode({"worker": worker, "by": by})


def wishes_of(nodes: Mapping[str, Node]) -> dict[str, str]:
    """Unit → the worker where an operator wants it."""
    found = {}
    for unit, node in nodes.items():
        try:
            found[unit] = text_field(node.content, f"wishes/{unit}", "worker")
        except Fatal as error:
            log.warning("a wish is ignored", error=error)
    return found
