"""One cluster with a set, and the workers and the scheduler that a test starts in it."""

from contextlib import ExitStack

from millrace.schemas.documents import TaskKind
from millrace.schemas.status import TaskReport, TaskState
from millrace.zk.client.session import Session
from millrace.zk.ensemble import Ensemble
from millrace.zk.tree.store import Store
from millrace.zk.view import read_cluster, views
from tests.kit.control.control import ScriptedRunner, a_set, scheduled, supervised
from tests.kit.waiting import eventually


class Stage:
    """One cluster with a set, and the processes that a test starts in it."""

    def __init__(self, ensemble: Ensemble, stack: ExitStack) -> None:
        self.ensemble, self.tree, self._stack = ensemble, ensemble.tree, stack
        self.session = self.new_session()
        self.store = Store(self.session, self.tree)
        self.store.create_set(a_set())

    def new_session(self) -> Session:
        """A session that ends with the test."""
        return self._stack.enter_context(self.ensemble.session())

    def worker(
        self, runner: ScriptedRunner, name: str = "w1", kind: TaskKind = TaskKind.CAPTURE
    ) -> None:
        """Start a worker."""
        self._stack.enter_context(
            supervised(self.new_session(), self.tree, runner, name=name, kind=kind)
        )

    def scheduler(self) -> None:
        """Start a scheduler."""
        self._stack.enter_context(scheduled(self.new_session(), self.tree))

    def report(self, task: str) -> TaskReport:
        """The task's report, as `millrace status` shows it."""
        found = {view.name: view.report for view in views(read_cluster(self.session, self.tree))}
        return found[task]

    def reaches(self, task: str, state: TaskState, why: str = "") -> TaskReport:
        """Wait for this state and return its report; a later report of a retried task may differ."""
        seen: list[TaskReport] = []

        def claim() -> bool:
            seen[:] = [self.report(task)]
            return seen[0].state is state and why in seen[0].why

        eventually(claim, what=f"{task} {state.value} {why}")
        return seen[0]

    def pause(self, task: str) -> None:
        """Pause a task and wait until its run has ended: a worker may not notice a pause that is taken back at once."""
        self.store.pause(task, by="ann")
        owner = self.tree.owner(task)
        eventually(lambda: self.session.get(owner) is None, what=f"{task} stops")
