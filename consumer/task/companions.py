"""The threads beside the stream of a task: its later loads, and its comparisons. Apart: a run can be without."""

from collections.abc import Callable
from dataclasses import dataclass

from millrace.consumer.backfill.backfill import LaterLoads
from millrace.consumer.backfill.steps import Loads
from millrace.consumer.compare.task_comparison import Comparing, Comparisons
from millrace.consumer.task.report import NO_COMPARISON, NO_LOADS


@dataclass(frozen=True, slots=True)
class Beside:
    """The threads of one run; None: the task has none of it."""

    loads: LaterLoads | None = None
    comparisons: Comparisons | None = None

    @property
    def loading(self) -> Loads:
        """The later loads, for the status."""
        return self.loads.shown if self.loads else NO_LOADS

    @property
    def comparing(self) -> Comparing:
        """The comparisons, for the status."""
        return self.comparisons.comparing if self.comparisons else NO_COMPARISON

    @property
    def failure(self) -> BaseException | None:
        """The error that ends the run. No error of a comparison does."""
        return self.loads.failure if self.loads else None

    def start(self, progressed: Callable[[], None]) -> None:
        """Start them. ``progressed`` is called after each step of a load."""
        if self.loads is not None:
            self.loads.progressed = progressed
            self.loads.start()
        if self.comparisons is not None:
            self.comparisons.start()

    def end(self) -> None:
        """End them."""
        try:
            if self.comparisons is not None:
                self.comparisons.end()
        finally:
            if self.loads is not None:
                self.loads.end()
