"""The answers of a cluster in which a task is alone: no report, no decision, no request, no other task."""

from collections.abc import Callable, Mapping

from millrace.schemas.documents import Directives, TaskDocument
from millrace.schemas.requests.decision import Decision
from millrace.schemas.requests.snapshot_request import SnapshotRequests
from millrace.schemas.status import TaskReport


class Alone:
    """The part of ``zk.run.runner.SetSource`` that concerns other actors."""

    def last_report(self, task: TaskDocument) -> TaskReport | None:
        """No task has run before."""

    def directives(self, set_name: str) -> Directives:
        """No operator has any."""
        return Directives()

    def waiting_decision(self, task: TaskDocument) -> None:
        """No operator has decided."""

    def end_decision(self, task: TaskDocument, decision: Decision) -> None:
        """Nothing to remove."""

    def snapshot_requests(self, task: str) -> SnapshotRequests:
        """No operator has one."""
        return SnapshotRequests()

    def change_snapshots(
        self, task: str, change: Callable[[SnapshotRequests], SnapshotRequests]
    ) -> SnapshotRequests:
        """Nothing is kept."""
        return change(SnapshotRequests())

    def positions_of(self, set_name: str, *, is_complete: bool = False) -> Mapping[str, str]:
        """There is no other task."""
        return {}
