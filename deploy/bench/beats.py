"""Source transactions at a steady rate, each of them timed, for the latencies of capture and of apply.

``WRITERS`` processes offer ``RATE`` one-row transactions a second together. None is sampled:

    begin   after INSERT has been answered, just before COMMIT is sent: a latency includes the source's commit
    end     the observer has the row; capture and apply have their own observers

Writers are separate processes, so that the observer's Python does not delay their stamps. All clocks are the machine's
monotonic clock. A row that has not arrived after ``ARRIVE_S`` fails the run, and so does a writer that commits less
than ``OFFERED_MIN`` of what it offered. The first ``WARM_UP_S`` of the first round do not count, and a quarter of it of
each later one.
"""

import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

from millrace.deploy.bench.figure import say
from millrace.deploy.servers import DatabaseServer, sql
from millrace.deploy.workload.beats import percentile
from millrace.errors import Fatal

RATE = 500.0
WRITERS = 2
ARRIVE_S = 600.0
OFFERED_MIN = 0.9
SHARES = (0.5, 0.99)
WARM_UP_S = 10.0
MEASURED_S = 30.0
MEASURED_S_MIN = 5.0  # in a shorter time, one slow commit is a tenth of what is offered


@dataclass(frozen=True, slots=True)
class Latencies:
    """Those of the transactions after the warm-up, in ms; ``load``: how many were committed in a second."""

    values: list[float]
    load: float

    @classmethod
    def of_beats(
        cls, committed: Mapping[int, float], arrived: Mapping[int, float], warm_up_s: float
    ) -> "Latencies":
        since_s = min(committed.values()) + warm_up_s
        counted = {beat: at_s for beat, at_s in committed.items() if at_s >= since_s}
        measured_s = max(counted.values(), default=since_s) - since_s
        latencies = cls(
            [(arrived[beat] - at_s) * 1000 for beat, at_s in counted.items()],
            len(counted) / measured_s if measured_s else 0.0,
        )
        shown = ", ".join(f"p{share * 100:.0f} {latencies.of(share):.1f} ms" for share in SHARES)
        say(f"  {len(counted):,} transactions in {measured_s:.1f} s: {shown}")
        return latencies

    def of(self, share: float) -> float:
        """A percentile. Fatal MR-8004 if there was no transaction."""
        value = percentile(self.values, share)
        if value is None:
            raise Fatal("MR-8004", "no transaction was written while latency was measured")
        return value


def create_beats(source: DatabaseServer, database: str) -> None:
    source.execute(f"CREATE DATABASE {database}")
    source.execute(
        f"CREATE TABLE {database}.beats (beat BIGINT NOT NULL PRIMARY KEY, note VARCHAR(100))"
    )


@dataclass(frozen=True, slots=True)
class Round:
    """Round ``number``, from 0 on. ``scale`` makes the seconds fewer."""

    number: int
    scale: float

    def latencies(
        self, source: DatabaseServer, database: str, observer: Sequence[str]
    ) -> Latencies:
        """Write beats while a program observes them: a module and its arguments, without the number of beats.

        It prints a line when it is ready, and at its end its stamps.
        """
        warm_up_s = (WARM_UP_S if self.number == 0 else WARM_UP_S / 4) * self.scale
        seconds = warm_up_s + max(MEASURED_S * self.scale, MEASURED_S_MIN)
        count = round(seconds * RATE / WRITERS) * WRITERS
        with _started(*observer, str(count)) as process:
            assert process.stdout is not None
            process.stdout.readline()
            committed = write_beats(source, database, seconds)
            arrived = _stamps_of(process, timeout_s=ARRIVE_S)
        return Latencies.of_beats(committed, arrived, warm_up_s)


def write_beats(source: DatabaseServer, database: str, seconds: float) -> dict[int, float]:
    """Run the writers; when each beat was committed: 1, 2, …."""
    committed: dict[int, float] = {}
    with ExitStack() as undo:
        writers = [
            undo.enter_context(
                _started(__name__, str(source.socket), database, str(number), str(seconds))
            )
            for number in range(WRITERS)
        ]
        for writer in writers:
            stamps = _stamps_of(writer, timeout_s=3 * seconds + ARRIVE_S)
            took_s = max(stamps.values()) - min(stamps.values())
            if len(stamps) < OFFERED_MIN * RATE / WRITERS * took_s:
                raise Fatal("MR-8004", f"a writer committed {len(stamps)} in {took_s:.1f} s")
            committed |= stamps
    return committed


@contextmanager
def _started(module: str, *arguments: str) -> "Iterator[subprocess.Popen[str]]":
    """A module as a program, which ends with the block."""
    command = (sys.executable, "-P", "-m", module, *arguments)
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()  # nothing if it has ended


def _stamps_of(process: "subprocess.Popen[str]", *, timeout_s: float) -> dict[int, float]:
    """The lines that the process printed at its end, each a beat and a moment. Fatal MR-8004 if it failed."""
    try:
        printed, _ = process.communicate(timeout=timeout_s)
    except subprocess.TimeoutExpired:
        raise Fatal("MR-8004", "not all records arrived") from None
    if process.returncode != 0:
        raise Fatal("MR-8004", f"a process of the benchmark ended with {process.returncode}")
    pairs = (line.split() for line in printed.splitlines())
    return {int(beat): float(at_s) for beat, at_s in pairs}


def print_stamps(stamps: Mapping[int, float]) -> None:
    for beat, at_s in stamps.items():
        print(beat, at_s)


def _write(socket: Path, database: str, number: int, seconds: float) -> None:
    """Beats ``number + 1``, ``number + 1 + WRITERS``, …; at the end a line for each: the beat and its commit."""
    committed: dict[int, float] = {}
    with closing(sql.open_root(socket, database=database)) as connection:
        cursor = connection.cursor()
        begin_s = time.monotonic() + number / RATE
        for turn in range(round(seconds * RATE / WRITERS)):
            time.sleep(max(begin_s + turn * WRITERS / RATE - time.monotonic(), 0.0))
            beat = turn * WRITERS + number + 1
            cursor.execute("INSERT INTO beats VALUES (%s, 'a row of a transaction')", (beat,))
            at_s = time.monotonic()
            connection.commit()
            committed[beat] = at_s
    print_stamps(committed)


if __name__ == "__main__":
    _write(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), float(sys.argv[4]))
