"""Fetches the servers we run locally into the home folder: ``python -m deploy.fetch``.

    $MILLRACE_HOME/
        jars/spark/     the Kafka connector and what PySpark lacks for it
        jars/kafka/     a broker (KRaft)
        mariadb/        MariaDB 11.4 (bin/, share/)
        mysql/          MySQL 9.7 or later: mysqld, mysqlbinlog, … (Debian on amd64)
        ivy/            Ivy's own cache; may be deleted

ZooKeeper is inside PySpark. What is fetched, in which versions, stands in ``ivy.xml`` and ``mysql-server``; Apache Ivy
(inside PySpark too) knows where from and checks the checksums, apt checks the signatures.

Guarantees: a folder appears under its final name only when it is whole; a second run does nothing; two runs at
once wait for each other. A MySQL that can't be fetched is no failure: it is said in one sentence, MariaDB is enough.
"""

import fcntl
import importlib.util
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path

from deploy.servers.programs import MYSQL_HINT, check_mysql
from millrace.errors import Fatal, MillraceError
from millrace.home import home
from millrace.java import java_program

_HERE = Path(__file__).parent
IVY_FILE = _HERE / "ivy.xml"
PROGRESS_EVERY_S = 3.0


def fetch_all() -> None:
    """Fetch what is not there yet; says what it does on standard output. Fatal MR-8003 when it can't."""
    with _one_at_a_time():
        for conf, size_mb in (("spark", 7), ("kafka", 45), ("mariadb", 142)):
            _fetch_jars(conf, size_mb=size_mb)
        _unpack_mariadb()
        _fetch_mysql()


@contextmanager
def _one_at_a_time() -> Iterator[None]:
    with (home() / "fetch.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _fetch_jars(conf: str, *, size_mb: int) -> None:
    stamp = sha256(IVY_FILE.read_bytes()).hexdigest()
    folder = home() / "jars" / conf
    if (folder / "stamp").is_file() and (folder / "stamp").read_text() == stamp:
        return
    print(f"millrace: fetching {conf} ({size_mb} MB)", flush=True)
    with tempfile.TemporaryDirectory(dir=home()) as scratch:
        pattern = f"{scratch}/[conf]/[artifact]-[revision].[ext]"
        cache = home() / "ivy"
        command = [str(java_program()), "-cp", str(_ivy_jar()), "org.apache.ivy.Main"]
        command += ["-ivy", str(IVY_FILE), "-cache", str(cache), "-confs", conf]
        _run_shown([*command, "-retrieve", pattern], growing=cache)
        fetched = Path(scratch) / conf
        if not fetched.is_dir():
            raise Fatal("MR-8003", f"Ivy fetched nothing for {conf}")
        (fetched / "stamp").write_text(stamp)
        folder.parent.mkdir(exist_ok=True)
        shutil.rmtree(folder, ignore_errors=True)
        fetched.rename(folder)


def _unpack_mariadb() -> None:
    """Take the server out of its jar: the folder that holds ``bin`` becomes $MILLRACE_HOME/mariadb."""
    (jar,) = (home() / "jars" / "mariadb").glob("*.jar")
    folder = home() / "mariadb"
    if (folder / "stamp").is_file() and (folder / "stamp").read_text() == jar.name:
        return
    print("millrace: unpacking mariadb", flush=True)
    with tempfile.TemporaryDirectory(dir=home()) as scratch, zipfile.ZipFile(jar) as archive:
        names = [
            name for name in archive.namelist() if "/linux/" in name and not name.endswith(".a")
        ]
        archive.extractall(scratch, names)
        (program,) = Path(scratch).rglob("bin/mariadbd")
        for path in program.parent.iterdir():
            path.chmod(0o755)
        unpacked = program.parent.parent
        (unpacked / "stamp").write_text(jar.name)
        shutil.rmtree(folder, ignore_errors=True)
        unpacked.rename(folder)


def _fetch_mysql() -> None:
    folder = home() / "mysql"
    if (folder / "mysqld").exists():
        try:
            check_mysql(folder / "mysqld")
            return
        except Fatal:
            shutil.rmtree(folder)  # fetched when the suite had an older one
    if shutil.which("dpkg") is None or shutil.which("apt-get") is None:
        print(f"millrace: MySQL is fetched on Debian amd64 only; {MYSQL_HINT}", flush=True)
        return
    print("millrace: fetching mysql (60 MB, unpacked 620 MB)", flush=True)
    try:
        _run_shown(["bash", str(_HERE / "mysql-server"), str(folder)], growing=folder)
        check_mysql(folder / "mysqld")
    except Fatal as error:
        shutil.rmtree(folder, ignore_errors=True)
        print(f"millrace: MySQL could not be fetched ({error.message}); {MYSQL_HINT}", flush=True)


def _ivy_jar() -> Path:
    spec = importlib.util.find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise Fatal("MR-8002", "PySpark is not installed", fix="Run `make setup`.")
    (jar,) = (Path(spec.origin).parent / "jars").glob("ivy-*.jar")
    return jar


def _run_shown(command: Sequence[str], *, growing: Path) -> None:
    """Run to the end; meanwhile print how large ``growing`` has become. Fatal MR-8003 with the last lines."""
    before = _size_mb(growing)
    with tempfile.TemporaryFile("w+") as output:
        process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT)
        began_s = time.monotonic()
        while True:
            try:
                process.wait(timeout=PROGRESS_EVERY_S)
                break
            except subprocess.TimeoutExpired:
                passed_s = time.monotonic() - began_s
                print(
                    f"  … {_size_mb(growing) - before} MB on disk after {passed_s:.0f} s",
                    flush=True,
                )
        if process.returncode != 0:
            output.seek(0)
            last = " | ".join(line.strip() for line in output.read().splitlines()[-5:])
            raise Fatal(
                "MR-8003", f"{Path(command[0]).name} ended with {process.returncode}: {last}"
            )


def _size_mb(folder: Path) -> int:
    total_bytes = 0
    for path in folder.rglob("*") if folder.is_dir() else ():
        try:
            total_bytes += path.lstat().st_size
        except FileNotFoundError:
            continue  # a partial file that was renamed meanwhile
    return total_bytes // 1_000_000


def main() -> int:
    """Entry of ``make setup``: fetch, say how long it took; 1 with code and fix when it fails."""
    began = time.monotonic()
    try:
        fetch_all()
    except MillraceError as error:
        print(f"{error}\n{error.fix}", file=sys.stderr)
        return 1
    print(f"millrace: servers are in {home()} ({time.monotonic() - began:.0f} s)", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
