"""Elects the scheduler that leads, and fences the leaders before it.

The scheduler that creates the ephemeral node ``leader`` leads; the others wait until it is gone. A leader may not know
yet that its session is over, and could still write. So each new leader first writes the node ``reign``, and commits
every assignment together with a check of the version that this write returned. ZooKeeper refuses the whole commit of
an older leader.

    step                      a crash after it leaves
    1 create leader           the node until the session ends; no scheduler leads until then
    2 put reign              all older leaders fenced
    3 commit check+changes    whole changes only
"""

from collections.abc import Sequence

from millrace import __version__
from millrace.errors import Fatal, Fenced, Retryable
from millrace.zk.client.session import Change, Check, Put, Session, Watch
from millrace.zk.tree.paths import Tree, decode, encode, text_field


class LeaderTerm:
    """This process's time as the leader. It ends with the session, or when a successor writes ``reign``."""

    def __init__(self, session: Session, tree: Tree, *, version: int, incarnation: int) -> None:
        self._session = session
        self._tree = tree
        self._version = version
        self._incarnation = incarnation
        self._unsettled: list[str] | None = None

    def is_current(self) -> bool:
        """Whether it leads, as far as this process knows. Does not ask ZooKeeper."""
        return self._session.incarnation == self._incarnation

    def commit(self, changes: Sequence[Change]) -> None:
        """Make all changes or none. Fenced MR-4008 if another leads; Retryable MR-4007 if a change does not apply."""
        try:
            self._session.commit(Check(self._tree.reign, self._version), *changes)
        except Retryable as error:
            if error.code != "MR-4007":
                raise
            node = self._session.get(self._tree.reign)
            if node is None or node.version != self._version:
                raise Fenced("MR-4008", "another scheduler leads") from error
            raise

    def publish(self, *, unsettled: list[str]) -> None:
        """Name the workers that are not settled in the ``leader`` node, when they have changed."""
        if unsettled == self._unsettled:
            return
        node = self._session.get(self._tree.leader)
        if node is not None and node.ephemeral_owner == self._session.id:
            plain = decode(node.content, self._tree.leader)
            content = encode({**plain, "unsettled": unsettled})
            self.commit([Put(self._tree.leader, content, node.version)])
        self._unsettled = unsettled

    def resign(self) -> None:
        """Delete our ``leader`` node, so that another scheduler can lead at once."""
        node = self._session.get(self._tree.leader)
        if node is not None and node.ephemeral_owner == self._session.id:
            self._session.delete(self._tree.leader, version=node.version)


def try_to_lead(session: Session, tree: Tree, *, name: str, watch: Watch) -> LeaderTerm | None:
    """The new term, or ``None`` while another leads; ``watch`` is called when that may have changed."""
    incarnation = session.incarnation
    content = encode({"scheduler": name, "version": __version__})
    if session.create(tree.leader, content, ephemeral=True) is None:
        leader = session.get(tree.leader, watch=watch)
        if leader is None or leader.ephemeral_owner != session.id:
            return None
        # our session's: its creation had no answer, or an earlier term of this session failed
    term = session.get(tree.reign)
    if term is None:
        raise Retryable("MR-4007", f"{tree.reign} is gone")
    written = session.put(tree.reign, content, version=term.version)
    return LeaderTerm(session, tree, version=written.version, incarnation=incarnation)


def unsettled_of(session: Session, tree: Tree) -> frozenset[str] | None:
    """The workers that the leader names as not settled; None when none leads, or its node has no such list."""
    node = session.get(tree.leader)
    try:
        found = decode(node.content, tree.leader).get("unsettled") if node is not None else None
    except Fatal:
        return None
    return frozenset(map(str, found)) if isinstance(found, list) else None


def leader_version(session: Session, tree: Tree) -> tuple[str, str] | None:
    """The leading scheduler and its version, "" if it is older than 0.2.0; None when none leads or can be read."""
    node = session.get(tree.leader)
    try:
        plain = decode(node.content, tree.leader) if node is not None else None
    except Fatal:
        return None
    return (str(plain.get("scheduler")), str(plain.get("version", ""))) if plain else None


def leader_of(session: Session, tree: Tree) -> str:
    """The leading scheduler's name, "" when none leads; a placeholder when its node can't be read."""
    node = session.get(tree.leader)
    if node is None:
        return ""
    try:
        return text_field(node.content, tree.leader, "scheduler")
    except Fatal:
        return "an unreadable scheduler"
