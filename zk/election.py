"""One scheduler leads: an ephemeral ``leader`` node, and a count of reigns that fences those before.

Whoever makes ``leader`` leads; the others look again when it goes. A leader whose session ended without its knowing
could still write; so each new one writes ``reign`` first, and every assignment is committed together with a check of
the version that this write gave. An older leader's commit is then refused by the ensemble as a whole.

    step                      a crash after it leaves
    1 create leader           the node until the session ends; nobody leads till then
    2 put reign               all older leaders fenced
    3 commit check+changes    whole changes only
"""

from collections.abc import Sequence

from millrace.errors import Fatal, Fenced, Retryable
from zk.session import Change, Check, Session, Watch
from zk.tree import Tree, encode, text_field


class Reign:
    """The time in which this process leads; lost by a lost session or by a successor's first write."""

    def __init__(self, session: Session, tree: Tree, *, version: int, incarnation: int) -> None:
        self._session = session
        self._tree = tree
        self._version = version
        self._incarnation = incarnation

    def is_current(self) -> bool:
        """What this process knows, without asking."""
        return self._session.incarnation == self._incarnation

    def commit(self, changes: Sequence[Change]) -> None:
        """All changes, if we still lead; else Fenced MR-4008. Retryable MR-4007 when only the changes disagree."""
        try:
            self._session.commit(Check(self._tree.reign, self._version), *changes)
        except Retryable as error:
            if error.code != "MR-4007":
                raise
            node = self._session.get(self._tree.reign)
            if node is None or node.version != self._version:
                raise Fenced("MR-4008", "another scheduler leads") from error
            raise

    def resign(self) -> None:
        """Let another lead at once."""
        node = self._session.get(self._tree.leader)
        if node is not None and node.ephemeral_owner == self._session.id:
            self._session.delete(self._tree.leader, version=node.version)


def stand(session: Session, tree: Tree, *, name: str, watch: Watch) -> Reign | None:
    """Try to lead; ``None`` when another does, and ``watch`` tells when that may have changed."""
    incarnation = session.incarnation
    content = encode({"scheduler": name})
    if session.create(tree.leader, content, ephemeral=True) is None:
        standing = session.get(tree.leader, watch=watch)
        if standing is None or standing.ephemeral_owner != session.id:
            return None
        # ours: made by a call whose answer was lost, or by a reign of this session that failed
    reign = session.get(tree.reign)
    if reign is None:
        raise Retryable("MR-4007", f"{tree.reign} is gone")
    version = session.put(tree.reign, content, version=reign.version)
    return Reign(session, tree, version=version, incarnation=incarnation)


def leader_of(session: Session, tree: Tree) -> str:
    """The leading scheduler's name, empty when none leads; a node that can't be read is somebody's all the same."""
    node = session.get(tree.leader)
    if node is None:
        return ""
    try:
        return text_field(node.content, tree.leader, "scheduler")
    except Fatal:
        return "an unreadable scheduler"
