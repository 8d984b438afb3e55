"""``relay.write``: receiving a server's binlog into the relay log, beside the server's own client that stores binlogs.

``BINLOG_BYTES`` wait at the source. Each round receives all of them into an empty folder with the receiver of a worker
(checksums, positions, GTIDs, grouped fsync), then with ``mysqlbinlog --raw --read-from-remote-server`` (or
``mariadb-binlog``), which only copies:

    relay.write, relay.write.tls    MB/s
    relay.cpu, relay.cpu.tls        CPU seconds of the client for 100 MB

The receiver is a separate process, as the peer is. Its clock starts when the kernels are loaded, before it connects,
and stops when the relay log has the last byte. The peer's clock is that of its process. Just before each clock starts,
a file of the same size is written and removed: on a virtual machine the first use of a page is slow, and only one of
the two would pay for it.
"""

import os
import resource
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from millrace.deploy.bench.figure import Figure, Size, bench_folder, say
from millrace.deploy.bench.peers import make_account
from millrace.deploy.servers import Account, DatabaseServer, sql
from millrace.deploy.servers.programs import MARIADB_SUITES, mariadb_programs, mysql_programs
from millrace.errors import Fatal
from millrace.producer.relay.writer import RelayLog
from millrace.producer.source.connection import Login, connect_member
from millrace.producer.source.receive.dump import ReplicaIdentity
from millrace.producer.source.receive.receiver import Receiver, ReceiverSource
from millrace.producer.task.warm_up import warm
from millrace.schemas.documents import Member, Tls, TlsMode
from millrace.schemas.gtid import Flavour

LINES = ("relay.write", "relay.cpu", "relay.write.tls", "relay.cpu.tls")
BINLOG_BYTES = 1 << 30
TRANSACTION_ROWS = 500
ROW_BYTES = 200
PEER = "mysqlbinlog --raw --read-from-remote-server"
RECEIVE_S = 900.0
POLL_S = 0.005
TOUCH_BYTES = 4 << 20
_MODES = {"": TlsMode.DISABLED, ".tls": TlsMode.REQUIRE_UNVERIFIED}


@dataclass(frozen=True, slots=True)
class Cost:
    """One reception: its seconds, and the CPU seconds of the client."""

    wall_s: float
    cpu_s: float


@dataclass(frozen=True, slots=True)
class Binlog:
    """A source's binlog: the size of each file, oldest first."""

    source: DatabaseServer
    account: Account
    sizes: dict[str, int]

    @property
    def bytes(self) -> int:
        return sum(self.sizes.values())


def relay_figures(size: Size) -> Iterator[Figure]:
    """The lines: medians over the rounds. MariaDB without its ``mariadb-binlog`` has no peer."""
    costs: dict[tuple[str, bool], list[Cost]] = {}
    with _binlog(size) as binlog:
        program = _peer_program(size.flavour)
        for number in range(size.rounds):
            for suffix, mode in _MODES.items():
                for is_peer in (False, True) if program is not None else (False,):
                    with bench_folder() as folder:
                        cost = (
                            _copy(binlog, program, mode, folder)
                            if is_peer and program is not None
                            else _receive(binlog, mode, folder)
                        )
                        _check(binlog, folder)
                    costs.setdefault((suffix, is_peer), []).append(cost)
                    rate = binlog.bytes / 1e6 / cost.wall_s
                    who = PEER if is_peer else "relay log"
                    say(f"  round {number}{suffix} {who}: {rate:,.0f} MB/s, {cost.cpu_s:.2f} s CPU")
    peer = PEER if program is not None else None
    for suffix in _MODES:
        ours, theirs = costs[suffix, False], costs.get((suffix, True), [])
        hundreds = binlog.bytes / 1e8
        rates = [_middle(100 * hundreds / cost.wall_s for cost in each) for each in (ours, theirs)]
        cpus = [_middle(cost.cpu_s / hundreds for cost in each) for each in (ours, theirs)]
        yield Figure(f"relay.write{suffix}", rates[0] or 0.0, "MB/s", peer, rates[1])
        yield Figure(f"relay.cpu{suffix}", cpus[0] or 0.0, "CPU s per 100 MB", peer, cpus[1])


def _middle(values: Iterator[float]) -> float | None:
    numbers = list(values)
    return median(numbers) if numbers else None


def _peer_program(flavour: Flavour) -> Path | None:
    """The server's own client; None, with a line on standard error, if this machine has none."""
    if flavour is Flavour.MYSQL:
        programs = mysql_programs()
        program = programs.mysqlbinlog if programs is not None else None
    else:
        program = mariadb_programs(max(MARIADB_SUITES)).mariadb_binlog
        program = program if program.exists() else None
    if program is None:
        say("  no peer: there is no mysqlbinlog")
    return program


@contextmanager
def _binlog(size: Size) -> Iterator[Binlog]:
    """A source whose binlog has ``BINLOG_BYTES`` times the scale, in transactions of ``TRANSACTION_ROWS``."""
    with bench_folder() as folder, ExitStack() as undo:
        source = DatabaseServer.of(size.flavour, folder)
        undo.callback(source.discard)
        source.start()
        source.execute("CREATE DATABASE bench")
        source.execute(
            f"CREATE TABLE bench.t (id BIGINT AUTO_INCREMENT PRIMARY KEY, v VARCHAR({ROW_BYTES}))"
        )
        value = "CONCAT(SHA2(RAND(), 512), REPEAT('x', 72))"
        rows = ", ".join(f"({value})" for _ in range(TRANSACTION_ROWS))
        with closing(sql.open_root(source.socket, database="bench")) as connection:
            cursor = connection.cursor()
            cursor.execute(f"INSERT INTO t (v) VALUES {rows}")
            connection.commit()
            count = round(BINLOG_BYTES * size.scale / (TRANSACTION_ROWS * ROW_BYTES))
            copied = f"INSERT INTO t (v) SELECT v FROM t WHERE id <= {TRANSACTION_ROWS}"
            for _ in range(max(count, 1)):
                cursor.execute(copied)
                connection.commit()
        account = make_account(source)
        sizes = {str(row[0]): int(str(row[1])) for row in source.execute("SHOW BINARY LOGS")}
        binlog = Binlog(source, account, sizes)
        say(f"  {binlog.bytes / 1e6:,.0f} MB of binlog")
        yield binlog


def _receive(binlog: Binlog, mode: TlsMode, folder: Path) -> Cost:
    """The receiver, in a separate process. Fatal MR-8004 if it fails."""
    source = binlog.source
    last, length = list(binlog.sizes.items())[-1]
    place = (last, str(length), str(binlog.bytes))
    arguments = (source.flavour, str(source.port), mode, str(folder / "relay"), *place)
    done = subprocess.run(
        (sys.executable, "-P", "-m", __name__, *arguments),
        env={**os.environ, "BENCH_PASSWORD": binlog.account.password},
        capture_output=True,
        text=True,
        timeout=RECEIVE_S,
        check=False,
    )
    if done.returncode != 0:
        raise Fatal("MR-8004", f"the receiver failed: {done.stderr.strip()}")
    wall_s, cpu_s = map(float, done.stdout.split()[-2:])
    return Cost(wall_s, cpu_s)


def _copy(binlog: Binlog, program: Path, mode: TlsMode, folder: Path) -> Cost:
    options = folder / "options"
    options.touch(mode=0o600)
    options.write_text(
        f"[client]\nuser={binlog.account.user}\npassword={binlog.account.password}\n"
    )
    (folder / "raw").mkdir()
    command = (
        str(program),
        f"--defaults-file={options}",
        f"--host={binlog.source.host}",
        "--protocol=TCP",
        f"--port={binlog.source.port}",
        *_tls_options(binlog.source.flavour, mode),
        "--raw",
        "--read-from-remote-server",
        f"--result-file={folder / 'raw'}/",
        "--to-last-log",
        next(iter(binlog.sizes)),
    )
    _touch_pages(folder, binlog.bytes)
    cpu_s, begin_s = _children_cpu_s(), time.monotonic()
    done = subprocess.run(command, capture_output=True, text=True, timeout=RECEIVE_S, check=False)
    wall_s = time.monotonic() - begin_s
    if done.returncode != 0:
        raise Fatal("MR-8004", f"mysqlbinlog failed: {done.stderr.strip()}")
    return Cost(wall_s, _children_cpu_s() - cpu_s)


def _tls_options(flavour: Flavour, mode: TlsMode) -> Sequence[str]:
    is_plain = mode is TlsMode.DISABLED
    if flavour is Flavour.MARIADB:
        return ("--skip-ssl",) if is_plain else ("--ssl", "--disable-ssl-verify-server-cert")
    return (
        ("--ssl-mode=DISABLED", "--get-server-public-key") if is_plain else ("--ssl-mode=REQUIRED",)
    )


def _touch_pages(folder: Path, size: int) -> None:
    """Write and remove a file, so that its pages are ready for the next one."""
    scratch, piece = folder / "scratch", bytes(TOUCH_BYTES)
    with scratch.open("wb", buffering=0) as file:
        for _ in range(0, size, TOUCH_BYTES):
            file.write(piece)
    scratch.unlink()


def _children_cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _check(binlog: Binlog, folder: Path) -> None:
    """Fatal MR-8004 unless the folder has files of these sizes."""
    files = {path.name: path.stat().st_size for path in folder.rglob("mysql-bin.*")}
    if files != binlog.sizes:
        raise Fatal("MR-8004", f"received {files}, not {binlog.sizes}")
    shutil.rmtree(folder / "raw", ignore_errors=True)


def _run_receiver(
    flavour: str, port: str, mode: str, root: str, file: str, length: str, size: str
) -> None:
    """Receive up to this place, and print the seconds and the CPU seconds."""
    warm()
    member = Member(DatabaseServer.host, int(port))
    login = Login(user="peer", password=os.environ["BENCH_PASSWORD"], tls=Tls(TlsMode(mode)))
    over_tls = Login(user="peer", password=login.password, tls=Tls(TlsMode.REQUIRE_UNVERIFIED))
    connect_member(member, over_tls).close()  # MySQL's plain logins need one before them
    relay = RelayLog.open(Path(root), flavour=Flavour(flavour))
    source = ReceiverSource(member=member, login=login, replica=ReplicaIdentity.for_set("bench"))
    receiver, stop = Receiver(source, relay, wanted=None), threading.Event()
    _touch_pages(Path(root), int(size))
    cpu_s, begin_s = time.process_time(), time.monotonic()
    thread = threading.Thread(target=receiver.run, args=(stop,))
    thread.start()
    while (end := relay.end()) is None or (end.file, end.pos) != (file, int(length)):
        if not thread.is_alive():
            raise Fatal("MR-8004", "the receiver ended")
        time.sleep(POLL_S)
    print(time.monotonic() - begin_s, time.process_time() - cpu_s)
    stop.set()
    thread.join()
    relay.close()


if __name__ == "__main__":
    _run_receiver(*sys.argv[1:])
