"""An ensemble: nodes, sessions that end, and each process's own view of its session.

A process does not notice that its session has ended. Its next request is answered by a new session, and only then (or
after ``hears``) its incarnation increases, as with the real client.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

from millrace.errors import Retryable
from millrace.zk.client.session import Node, Session, SessionState, Watch
from millrace.zk.tree.paths import Tree, create_tree
from tests.simulation.gate import Process

TREE = Tree("model")


def _no_answer(*, is_write: bool) -> Callable[[], Exception]:
    code = "MR-4002" if is_write else "MR-4001"
    return lambda: Retryable(code, "no answer from the model ensemble")


@dataclass
class ModelEnsemble:
    """All nodes; ``zxid`` numbers changes."""

    nodes: dict[str, Node] = field(default_factory=dict)
    zxid: int = 1 << 32
    living: set[int] = field(default_factory=set)
    _sessions: int = 0

    def __post_init__(self) -> None:
        create_tree(ModelSession(self, Process("operator")), TREE)

    def begin_session(self) -> int:
        """A new session's id."""
        self._sessions += 1
        self.living.add(self._sessions)
        return self._sessions

    def end_session(self, session: int) -> None:
        """Expire a session: its ephemeral nodes are deleted."""
        self.living.discard(session)
        if session:
            for path in [p for p, node in self.nodes.items() if node.ephemeral_owner == session]:
                del self.nodes[path]

    def next_zxid(self) -> int:
        """The next zxid."""
        self.zxid += 1
        return self.zxid


class ModelSession(Session):
    """The part of ``zk.client.session.Session`` that a lease uses."""

    def __init__(self, ensemble: ModelEnsemble, process: Process) -> None:
        self._ensemble = ensemble
        self._process = process
        self._incarnation = 0
        self._id = ensemble.begin_session()
        self._state = SessionState.CONNECTED

    @property
    def id(self) -> int:
        return self._id

    @property
    def incarnation(self) -> int:
        return self._incarnation

    def notice_end(self) -> None:
        """Find out whether the session is over."""
        if self._id not in self._ensemble.living:
            self._id = self._ensemble.begin_session()
            self._incarnation += 1

    def expire(self) -> None:
        """The ensemble ends the session; the process does not notice."""
        self._ensemble.end_session(self._id)

    def get(self, path: str, *, watch: Watch | None = None) -> Node | None:
        with self._process.asks(_no_answer(is_write=False)):
            self.notice_end()
            return self._ensemble.nodes.get(path)

    def create(self, path: str, content: bytes, *, ephemeral: bool = False) -> Node | None:
        with self._process.asks(_no_answer(is_write=True)):
            self.notice_end()
            if path in self._ensemble.nodes:
                return None
            zxid = self._ensemble.next_zxid()
            node = Node(content, 0, zxid, zxid, 0, self._id if ephemeral else 0)
            self._ensemble.nodes[path] = node
            return node

    def delete(self, path: str, *, version: int) -> None:
        with self._process.asks(_no_answer(is_write=True)):
            self.notice_end()
            node = self._ensemble.nodes.get(path)
            if node is None:
                return
            if node.version != version:
                raise Retryable("MR-4007", "another process changed it first")
            self._ensemble.next_zxid()
            del self._ensemble.nodes[path]
