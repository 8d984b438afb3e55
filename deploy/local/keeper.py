"""Restarts processes of a local stack that end, as a service manager would.

    python -m millrace.deploy.local.keeper FOLDER

The ``process.json`` files describe the processes. A process that has ended is restarted after a pause, which doubles
while restarts follow each other. Guarantees: the rest of the old session is ended before the process is restarted. A
failed start is retried.
Not done here: health checks. A process that hangs is not restarted.
"""

import signal
import sys
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from millrace import log
from millrace.deploy.local.background import KEEPER, records
from millrace.deploy.servers.process import ProcessRecord, ServerProcess, is_running, kill_session
from millrace.errors import MillraceError

POLL_S = 0.5
PAUSE_FIRST_S = 1.0
PAUSE_MAX_S = 30.0
CALM_S = 60.0  # after this uptime the pause is short again


@dataclass(frozen=True, slots=True)
class Death:
    """A process was found dead at ``seen_s``. Its restart is due at ``due_s`` (both: monotonic clock)."""

    seen_s: float
    due_s: float
    pause_s: float


def next_death(previous: Death | None, now_s: float) -> Death:
    """The death at ``now_s``. Its pause doubles if the last restart was less than CALM_S ago."""
    is_repeated = previous is not None and now_s - previous.due_s < CALM_S
    pause_s = (
        min(previous.pause_s * 2, PAUSE_MAX_S)
        if previous is not None and is_repeated
        else PAUSE_FIRST_S
    )
    return Death(now_s, now_s + pause_s, pause_s)


class Keeper:
    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._log = log.get_logger("deploy.local.keeper")
        self._children: dict[str, ServerProcess] = {}
        self._deaths: dict[str, Death] = {}
        self._dead: set[str] = set()

    def run(self, stop: threading.Event) -> None:
        """Watch until ``stop`` is set. Restarted processes keep running."""
        while not stop.wait(POLL_S):
            self.reap()
            for record in records(self._folder):
                if record.spec.name != KEEPER:
                    self._try_check(record)

    def reap(self) -> None:
        """Collect the exit codes of ended children, so that none stays a zombie."""
        for child in self._children.values():
            child.is_alive()

    def _try_check(self, record: ProcessRecord) -> None:
        """A failed start (a full disk) is retried after the next pause."""
        try:
            self._check(record)
        except (OSError, MillraceError) as error:
            with suppress(OSError):  # the disk that holds the log may be full
                self._log.warning("restart failed", process=record.spec.name, error=str(error))

    def _check(self, record: ProcessRecord) -> None:
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
            self._log.info("restarted", process=name)


def main() -> None:
    log.configure(json=False, level="info")
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    Keeper(Path(sys.argv[1])).run(stop)


if __name__ == "__main__":
    main()
