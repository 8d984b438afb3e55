"""Where the programs are that the local servers run: the home folder, the environment, the system.

Guarantees: what is returned exists and can be executed, and a MySQL is of a version that we run; what is missing is
Fatal (MR-8002, MR-8005) with the command that mends it. Not done here: fetching (``deploy.fetch``).
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
from millrace.home import home

MYSQLD_ENVIRONMENT = "MILLRACE_MYSQLD"
MYSQL_MIN = (9, 7)  # what everything is tried with; VECTOR, which the tests store, came with 9.0
MYSQL_HINT = f"give MySQL (9.7 or later) with `--mysqld PATH` or {MYSQLD_ENVIRONMENT}=PATH"
VERSION_S = 30.0


@dataclass(frozen=True, slots=True)
class MysqlPrograms:
    """MySQL's server, and the reader of its binlog when there is one."""

    mysqld: Path
    mysqlbinlog: Path | None


def mysql_programs(given: Path | None = None) -> MysqlPrograms | None:
    """From ``given``, MILLRACE_MYSQLD or the home folder, in this order; None when there is no MySQL.

    Fatal MR-8005 when what is named is no program, or what is found is not a MySQL of ``MYSQL_MIN`` or later.
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
    """Fatal MR-8005 with what it says of itself, unless it is a MySQL of ``MYSQL_MIN`` or later."""
    command = (str(mysqld), "--version")
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=VERSION_S, check=False
        )
        told = done.stdout.strip() or done.stderr.strip()
    except (OSError, subprocess.TimeoutExpired) as error:
        told = str(error)
    version = re.search(r"Ver (\d+)\.(\d+)", told)
    if version is None or "MariaDB" in told or tuple(map(int, version.groups())) < MYSQL_MIN:
        raise Fatal("MR-8005", f"{mysqld} is not MySQL 9.7 or later: {told}", fix=f"{MYSQL_HINT}.")


def mariadb_folder() -> Path:
    """The unpacked MariaDB: ``bin/mariadbd`` and ``share`` below it."""
    folder = home() / "mariadb"
    if not _is_program(folder / "bin" / "mariadbd"):
        raise Fatal("MR-8005", f"MariaDB is not in {folder}", fix="Run `make setup`.")
    return folder


def kafka_classpath() -> str:
    """The broker's jars as a Java class path."""
    return _classpath(home() / "jars" / "kafka")


def zookeeper_classpath() -> str:
    """ZooKeeper is among PySpark's own jars."""
    spec = importlib.util.find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise Fatal("MR-8002", "PySpark is not installed", fix="Run `make setup`.")
    return str(Path(spec.origin).parent / "jars" / "*")


def _classpath(folder: Path) -> str:
    return ":".join(str(jar) for jar in _jars(folder))


def _jars(folder: Path) -> list[Path]:
    jars = sorted(folder.glob("*.jar"))
    if not jars:
        raise Fatal("MR-8005", f"no jars in {folder}", fix="Run `make setup`.")
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
