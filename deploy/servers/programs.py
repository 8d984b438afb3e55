"""Finds the programs of the local servers: in the home folder, the environment or the system.

Guarantees: a returned program exists and is executable, and a MySQL has a supported version. A missing program is Fatal
(MR-8005, MR-8011) with the command that installs it. Not done here: fetching (``deploy.servers.fetch``).
"""

import importlib.util
import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from millrace.errors import Fatal
from millrace.home_folder import home
from millrace.process.installation import Extra, check_extra

MYSQLD_ENVIRONMENT = "MILLRACE_MYSQLD"
MYSQL_MIN = (9, 7)  # the version of all tests, which also store VECTOR (since 9.0)
MYSQL_HINT = f"give MySQL (9.7 or later) with `--mysqld PATH` or {MYSQLD_ENVIRONMENT}=PATH"
# Further releases of MariaDB for tests, and the Debian suites that they are fetched from.
MARIADB_SUITES = {"10.11": "bookworm", "11.8": "trixie"}
FETCH_HINT = (
    "Run `make setup`, or `python -m millrace.deploy.servers.fetch` where pip installed Millrace."
)
VERSION_S = 30.0


@dataclass(frozen=True, slots=True)
class MysqlPrograms:
    """MySQL's server, and mysqlbinlog if it was found."""

    mysqld: Path
    mysqlbinlog: Path | None


@dataclass(frozen=True, slots=True)
class MariadbPrograms:
    """MariaDB's server, its folder of messages and scripts, and its version for the names of templates."""

    mariadbd: Path
    share: Path
    stamp: str

    @property
    def mariadb_binlog(self) -> Path:
        """MariaDB's own reader of binlog files; MariaDB 11.4 comes without it."""
        return self.mariadbd.with_name("mariadb-binlog")


def mysql_programs(given: Path | None = None) -> MysqlPrograms | None:
    """From ``given``, MILLRACE_MYSQLD or the home folder, in this order. None if there is no MySQL.

    Fatal MR-8005 if the path is not a program, or the program is not MySQL ``MYSQL_MIN`` or later.
    """
    named = given or (Path(value) if (value := os.environ.get(MYSQLD_ENVIRONMENT)) else None)
    if named is not None and not _is_program(named):
        raise Fatal(
            "MR-8005",
            f"{named} is not a program",
            fix="Give the path of a mysqld that can be executed.",
        )
    mysqld = named or home() / "mysql" / "mysqld"
    if not _is_program(mysqld):
        return None
    check_mysql(mysqld)
    return MysqlPrograms(mysqld.absolute(), _mysqlbinlog(beside=mysqld))


@lru_cache
def check_mysql(mysqld: Path) -> None:
    """Fatal MR-8005 with the program's own version text, unless it is MySQL ``MYSQL_MIN`` or later."""
    command = (str(mysqld), "--version")
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=VERSION_S, check=False
        )
        printed = done.stdout.strip() or done.stderr.strip()
    except (OSError, subprocess.TimeoutExpired) as error:
        printed = str(error)
    version = re.search(r"Ver (\d+)\.(\d+)", printed)
    if version is None or "MariaDB" in printed or tuple(map(int, version.groups())) < MYSQL_MIN:
        raise Fatal(
            "MR-8005", f"{mysqld} is not MySQL 9.7 or later: {printed}", fix=f"{MYSQL_HINT}."
        )


def mariadb_programs(release: str = "") -> MariadbPrograms:
    """MariaDB 11.4, or another ``release`` of ``MARIADB_SUITES``. Fatal MR-8005 if it was not fetched."""
    folder = home() / (f"mariadb-{release}" if release else "mariadb")
    mariadbd = folder / "mariadbd" if release else folder / "bin" / "mariadbd"
    if not _is_program(mariadbd):
        raise Fatal("MR-8005", f"MariaDB {release} is not in {folder}", fix=FETCH_HINT)
    stamp = (folder / "stamp").read_text()
    return MariadbPrograms(mariadbd, folder / "share", stamp)


def kafka_classpath() -> str:
    """The broker's jars as a Java class path."""
    return _classpath(home() / "jars" / "kafka")


def zookeeper_classpath() -> str:
    """PySpark's jars, which include ZooKeeper, as a Java class path."""
    return str(pyspark_jars() / "*")


def pyspark_jars() -> Path:
    """The folder of PySpark's jars, with Ivy and ZooKeeper. Fatal MR-8011 if PySpark is missing."""
    check_extra(Extra.APPLY, user="a local server")
    spec = importlib.util.find_spec("pyspark")
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).parent / "jars"


def _classpath(folder: Path) -> str:
    return ":".join(str(jar) for jar in _jars(folder))


def _jars(folder: Path) -> list[Path]:
    jars = sorted(folder.glob("*.jar"))
    if not jars:
        raise Fatal("MR-8005", f"no jars in {folder}", fix=FETCH_HINT)
    return jars


def _mysqlbinlog(*, beside: Path) -> Path | None:
    for found in (
        beside.parent / "mysqlbinlog",
        beside.resolve().parent / "mysqlbinlog",
        home() / "mysql/mysqlbinlog",
    ):
        if _is_program(found):
            return found.absolute()
    on_path = shutil.which("mysqlbinlog")
    return Path(on_path) if on_path else None


def _is_program(path: Path) -> bool:
    return path.is_file() and os.access(path, os.X_OK)
