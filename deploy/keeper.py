"""Restarts what dies in a local stack, as a service manager would: ``python -m deploy.keeper FOLDER``.

What runs is read from the ``process.json`` files; a process that has ended is started again as it was, after a pause
that doubles with each restart in a row. Guarantees: what is left of a dead process' session is ended before its
successor starts; a start that fails is tried again.
Not done here: judging health. A process that lives but does nothing is not touched.
"""

import signal
import sys
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from deploy.background import KEEPER, records
from deploy.servers.process import ProcessRecord, ServerProcess, is_running, kill_session
from millrace import log
from millrace.errors import MillraceError

LOOK_S = 0.5
PAUSE_FIRST_S = 1.0
PAUSE_MAX_S = 30.0
CALM_S = 60.0  # a process that lived this long starts again without a longer pause


@dataclass(frozen=True, slots=True)
class Death:
    """Found at ``seen_s``; the next start is due at ``due_s`` (both of the monotonic clock)."""

    seen_s: float
    due_s: float
    pause_s: float


def next_death(previous: Death | None, now_s: float) -> Death:
    """The pause doubles while deaths follow each other within CALM_S of the last start."""
    is_row = previous is not None and now_s - previous.due_s < CALM_S
    pause_s = (
        min(previous.pause_s * 2, PAUSE_MAX_S) if previous is not None and is_row else PAUSE_FIRST_S
    )
    return Death(now_s, now_s + pause_s, pause_s)


class Keeper:
    """Watches one stack's folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._log = log.get_logger("deploy.keeper")
        self._children: dict[str, ServerProcess] = {}
        self._deaths: dict[str, Death] = {}
        self._dead: set[str] = set()

    def run(self, stop: threading.Event) -> None:
        """Until told to stop; what it started goes on."""
        while not stop.wait(LOOK_S):
            self.reap()
            for record in records(self._folder):
                if record.spec.name != KEEPER:
                    self._try_to_look_at(record)

    def reap(self) -> None:
        """Take the exit codes of children that have ended, so that none stays a zombie."""
        for child in self._children.values():
            child.is_alive()

    def _try_to_look_at(self, record: ProcessRecord) -> None:
        """What fails (a full disk) is tried again after the next pause."""
        try:
            self._look_at(record)
        except (OSError, MillraceError) as error:
            with suppress(OSError):  # the log may be what is full
                self._log.warning("not started", process=record.spec.name, error=str(error))

    def _look_at(self, record: ProcessRecord) -> None:
        name = record.spec.name
        if is_running(record.identity):
            return
        now_s = time.monotonic()
        if name not in self._dead:
            self._dead.add(name)
            self._deaths[name] = next_death(self._deaths.get(name), now_s)
            self._log.warning("ended", process=name, restart_in_s=self._deaths[name].pause_s)
        if now_s >= self._deaths[name].due_s:
            kill_session(record.identity)
            self._dead.discard(name)
            child = ServerProcess(record.spec, dies_with_parent=False)
            child.launch()
            self._children[name] = child
            self._log.info("started again", process=name)


def main() -> None:
    """Entry: the folder is the only argument."""
    log.configure(json=False, level="info")
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    Keeper(Path(sys.argv[1])).run(stop)


if __name__ == "__main__":
    main()
