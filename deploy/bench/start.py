"""``make bench-start``: how soon a new installation shows rows. ``docs/bench.md`` describes the lines.

Each round has an empty home folder. The wheel and what it needs are in their own virtual environment, so nothing
of the checkout runs. A writer commits a row every 20 ms meanwhile.
"""

import os
import secrets
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median

from millrace.deploy.bench.figure import Figure, Size, bench_folder, say
from millrace.deploy.package.bundle import build_wheel, collect_wheels
from millrace.deploy.servers import Account, DatabaseServer, ServerOptions
from millrace.errors import Fatal

FIRST_ROW, FIRST_ROW_COMPILED = "first_row.s", "first_row.compiled.s"
ROW_LINES = (FIRST_ROW, FIRST_ROW_COMPILED)
WHEEL, DEMO = "wheel.mb", "demo.s"
DATABASE = "bench"
WRITE_S = 0.02
ROW_WAIT_S = 120.0
COMPILE_S = 900.0
DEMO_WAIT_S = 600.0


def first_row_figures(size: Size) -> Iterator[Figure]:
    """Both lines: the seconds from the start of the process to the first row on its standard output."""
    first: list[float] = []
    compiled: list[float] = []
    with bench_folder() as folder, _busy_server(size, folder) as server:
        program = _installed(folder)
        for number in range(1, size.rounds + 1):
            say(f"  round {number} of {size.rounds}")
            home = folder / f"home-{number}"
            if size.wants(FIRST_ROW):
                first.append(_first_row_s(program, server, home))
                _end_processes(home)
        if size.wants(FIRST_ROW_COMPILED):
            home = folder / "home"
            _first_row_s(program, server, home)
            _wait_compiled(home)
            compiled += [_first_row_s(program, server, home) for _ in range(size.rounds)]
    for name, seconds in ((FIRST_ROW, first), (FIRST_ROW_COMPILED, compiled)):
        if seconds:
            yield Figure(name, median(seconds), "s")


def wheel_figures(_: Size) -> Iterator[Figure]:
    """The size of all wheels that a capture host downloads."""
    with bench_folder() as folder:
        files = _core_wheels(folder)
        yield Figure(WHEEL, sum(file.stat().st_size for file in files) / 1e6, "MB")


def demo_figures(size: Size) -> Iterator[Figure]:
    """The seconds of `millrace demo` where it ran before."""
    command = (sys.executable, "-m", "millrace", "demo", "--flavour", size.flavour.value)
    seconds = []
    for number in range(size.rounds + 1):
        say(f"  round {number} of {size.rounds}" if number else "  warm-up")
        begin_s = time.monotonic()
        subprocess.run(command, check=True, stdout=sys.stderr, timeout=DEMO_WAIT_S)
        seconds.append(time.monotonic() - begin_s)
    yield Figure(DEMO, median(seconds[1:]), "s")


def _core_wheels(folder: Path) -> list[Path]:
    (folder / "dist").mkdir()
    return collect_wheels(folder / "wheels", build_wheel(folder / "dist"))


def _installed(folder: Path) -> Path:
    """The program ``millrace`` of a virtual environment with the base of the wheel."""
    say("  installing the wheel")
    files = _core_wheels(folder)
    subprocess.run((sys.executable, "-m", "venv", str(folder / "venv")), check=True)
    pip = (str(folder / "venv/bin/python"), "-m", "pip", "install", "-q", "--no-index", "--no-deps")
    subprocess.run((*pip, *map(str, files)), check=True, stdout=sys.stderr)
    return folder / "venv/bin/millrace"


@contextmanager
def _busy_server(size: Size, folder: Path) -> Iterator[DatabaseServer]:
    """A server that a thread writes to."""
    server = DatabaseServer.of(size.flavour, folder / "server", ServerOptions(server_id=301))
    ends = threading.Event()
    writer = threading.Thread(target=_write, args=(server, ends))
    try:
        server.start()
        server.create_account(Account("bench", secrets.token_hex(12)), "ALL PRIVILEGES")
        server.execute(f"CREATE DATABASE {DATABASE}")
        server.execute(f"CREATE TABLE {DATABASE}.t (id INT AUTO_INCREMENT PRIMARY KEY, v TEXT)")
        writer.start()
        yield server
    finally:
        ends.set()
        if writer.ident is not None:
            writer.join()
        server.discard()


def _write(server: DatabaseServer, ends: threading.Event) -> None:
    while not ends.wait(WRITE_S):
        server.execute(f"INSERT INTO {DATABASE}.t (v) VALUES ('a row')")


def _first_row_s(program: Path, server: DatabaseServer, home: Path) -> float:
    """Run the program until its first row. Fatal MR-8004 if it shows none."""
    url = f"mysql://{server.user}@{server.host}:{server.port}/{DATABASE}?tls=require-unverified"
    begin_s = time.monotonic()
    with subprocess.Popen(
        (str(program), "try", url, "-n", "1", "--json"),
        env=_environment(home) | {"MYSQL_PWD": server.password},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        timer = threading.Timer(ROW_WAIT_S, process.kill)
        timer.start()
        assert process.stdout is not None
        line = process.stdout.readline()
        seconds = time.monotonic() - begin_s
        timer.cancel()
        _, said = process.communicate()
    if not line:
        raise Fatal("MR-8004", f"millrace try showed no row: {said[-500:]}")
    say(f"    {seconds:.2f} s")
    return seconds


def _environment(home: Path) -> dict[str, str]:
    home.mkdir(exist_ok=True)
    return {"PATH": os.environ["PATH"], "HOME": str(home), "MILLRACE_HOME": str(home)}


def _wait_compiled(home: Path) -> None:
    """Until the process in the background has compiled the kernels. Fatal MR-8004 after 15 minutes."""
    say("  compiling")
    deadline_s = time.monotonic() + COMPILE_S
    while not any((home / "kernels").glob("capture-*.compiled")):
        if time.monotonic() > deadline_s:
            raise Fatal("MR-8004", f"the kernels were not compiled in {COMPILE_S:.0f} s")
        time.sleep(0.5)
    while _processes(home):
        time.sleep(0.5)


def _end_processes(home: Path) -> None:
    """End the compilation in the background, which would slow the next round."""
    for pid in _processes(home):
        os.kill(pid, signal.SIGKILL)


def _processes(home: Path) -> list[int]:
    """Those that have this home folder in their environment."""
    found = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        try:
            is_ours = f"MILLRACE_HOME={home}\0".encode() in path.read_bytes()
        except OSError:  # it has ended, or is another user's
            continue
        if is_ours:
            found.append(int(path.parent.name))
    return found
