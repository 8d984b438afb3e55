"""Fetches the local servers into the home folder: ``python -m deploy.servers.fetch``.

``python -m deploy.servers.fetch spark`` fetches the Kafka connector alone, which is all that an apply driver needs.

    $MILLRACE_HOME/
        jars/spark/     the Kafka connector, and jars that it needs beside PySpark's
        jars/kafka/     a broker (KRaft)
        mariadb/        MariaDB 11.4 (bin/, share/)
        mariadb-10.11/, mariadb-11.8/   mariadbd, mariadb-binlog, … for tests (Debian on amd64)
        mysql/          MySQL 9.7 or later: mysqld, mysqlbinlog, … (Debian on amd64)
        ivy/            Ivy's own cache; may be deleted

PySpark contains ZooKeeper. ``ivy.xml`` and ``fetch-debian`` name what is fetched and its versions. Apache Ivy (also in
PySpark) downloads jars and checks their checksums. apt checks signatures.

Guarantees: a folder gets its final name only when it is complete. A second run does nothing. Two runs at the same time
wait for each other. If a package of Debian cannot be fetched, one sentence reports it and the run succeeds: only the
tests of this server need it.
"""

import contextlib
import fcntl
import os
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path

from deploy.servers.programs import MARIADB_SUITES, MYSQL_HINT, check_mysql, pyspark_jars
from millrace.errors import Fatal, MillraceError
from millrace.home_folder import home
from millrace.jvm import java_program

_HERE = Path(__file__).parent
IVY_FILE = _HERE / "ivy.xml"
PROGRESS_EVERY_S = 3.0
_PACKAGE_SIZES = {"mysql": "60 MB, unpacked 410 MB", "mariadb": "24 MB, unpacked 95 MB"}


def fetch_all() -> None:
    """Fetch what is missing, with progress on standard output. Fatal MR-8003 if a download fails."""
    fetch_connector()
    with _one_at_a_time():
        for conf, size_mb in (("kafka", 45), ("mariadb", 142)):
            _fetch_jars(conf, size_mb=size_mb)
        _unpack_mariadb()
        fetch_mysql()
        for release in MARIADB_SUITES:
            fetch_mariadb(release)


def fetch_connector() -> None:
    """Fetch Spark's Kafka connector alone, as ``fetch_all`` does."""
    with _one_at_a_time():
        _fetch_jars("spark", size_mb=7)


def fetch_jars(
    conf: str, *, size_mb: int, ivy_file: Path, finish: Callable[[Path], None] | None = None
) -> Path:
    """Fetch ``conf`` of another Ivy file, as ``fetch_all`` does. Returns its folder in ``jars``.

    ``finish`` gets the fetched folder before it has its final name. Fatal MR-8003 if the download fails.
    """
    with _one_at_a_time():
        return _fetch_jars(conf, size_mb=size_mb, ivy_file=ivy_file, finish=finish)


@contextmanager
def _one_at_a_time() -> Iterator[None]:
    with (home() / "fetch.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _fetch_jars(
    conf: str,
    *,
    size_mb: int,
    ivy_file: Path = IVY_FILE,
    finish: Callable[[Path], None] | None = None,
) -> Path:
    stamp = sha256(ivy_file.read_bytes()).hexdigest()
    folder = home() / "jars" / conf
    if (folder / "stamp").is_file() and (folder / "stamp").read_text() == stamp:
        return folder
    print(f"millrace: fetching {conf} ({size_mb} MB)", flush=True)
    with tempfile.TemporaryDirectory(dir=home()) as scratch:
        pattern = f"{scratch}/[conf]/[artifact]-[revision].[ext]"
        cache = home() / "ivy"
        command = [str(java_program()), "-cp", str(_ivy_jar()), "org.apache.ivy.Main"]
        command += ["-ivy", str(ivy_file), "-cache", str(cache), "-confs", conf]
        _run_shown([*command, "-retrieve", pattern], growing=cache)
        fetched = Path(scratch) / conf
        if not fetched.is_dir():
            raise Fatal("MR-8003", f"Ivy fetched nothing for {conf}")
        if finish is not None:
            finish(fetched)
        (fetched / "stamp").write_text(stamp)
        folder.parent.mkdir(exist_ok=True)
        shutil.rmtree(folder, ignore_errors=True)
        fetched.rename(folder)
    return folder


def _unpack_mariadb() -> None:
    """Extract the server from its jar: the folder that holds ``bin`` becomes $MILLRACE_HOME/mariadb."""
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


def fetch_mysql() -> None:
    """Fetch MySQL if it is missing or too old. Without dpkg and apt, or on an error, print one sentence."""
    folder = home() / "mysql"
    if (folder / "mysqld").exists():
        try:
            check_mysql(folder / "mysqld")
            return
        except Fatal:
            shutil.rmtree(folder)  # from a time when Debian had an older version
    _fetch_package(
        "MySQL", folder, lambda: check_mysql(folder / "mysqld"), suite="sid", hint=MYSQL_HINT
    )


def fetch_mariadb(release: str) -> None:
    """Fetch another release of MariaDB if it is missing. Without dpkg and apt, or on an error, print one sentence."""
    folder = home() / f"mariadb-{release}"
    if (folder / "stamp").is_file():
        return

    def stamp() -> None:
        command = [str(folder / "mariadbd"), "--version"]
        printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        (folder / "stamp").write_text(printed)

    hint = f"the tests of MariaDB {release} will fail"
    _fetch_package(f"MariaDB {release}", folder, stamp, suite=MARIADB_SUITES[release], hint=hint)


def _fetch_package(
    name: str, folder: Path, finish: Callable[[], None], *, suite: str, hint: str
) -> None:
    """Run ``fetch-debian`` and ``finish``. If that fails, print one sentence and leave no folder."""
    if shutil.which("dpkg") is None or shutil.which("apt-get") is None:
        print(f"millrace: {name} is fetched on Debian amd64 only; {hint}", flush=True)
        return
    server = name.split()[0].lower()
    print(f"millrace: fetching {name} ({_PACKAGE_SIZES[server]})", flush=True)
    try:
        command = ["bash", str(_HERE / "fetch-debian"), server, suite, str(folder)]
        _run_shown(command, growing=folder)
        finish()
    except (Fatal, subprocess.CalledProcessError) as error:
        shutil.rmtree(folder, ignore_errors=True)
        text = error.message if isinstance(error, Fatal) else str(error)
        print(f"millrace: {name} could not be fetched ({text}); {hint}", flush=True)


def _ivy_jar() -> Path:
    (jar,) = pyspark_jars().glob("ivy-*.jar")
    return jar


def _run_shown(command: Sequence[str], *, growing: Path) -> None:
    """Run ``command`` and print how ``growing`` grows. Fatal MR-8003 with the last output lines if it fails."""
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
    for path, _, names in os.walk(folder):  # not rglob: the command may delete a folder meanwhile
        for name in names:
            with contextlib.suppress(FileNotFoundError):
                total_bytes += Path(path, name).lstat().st_size
    return total_bytes // 1_000_000


def main() -> int:
    """Entry point of ``make setup``: fetch, and print the time. Returns 1 after an error, with code and fix."""
    began = time.monotonic()
    if sys.argv[1:] not in ([], ["spark"]):
        print("usage: python -m deploy.servers.fetch [spark]", file=sys.stderr)
        return 2
    try:
        fetch_connector() if sys.argv[1:] else fetch_all()
    except MillraceError as error:
        print(f"{error}\n{error.fix}", file=sys.stderr)
        return 1
    print(f"millrace: servers are in {home()} ({time.monotonic() - began:.0f} s)", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
