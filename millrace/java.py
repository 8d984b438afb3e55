"""The Java program, and archives of class data: what a JVM loads at its start, ready to be mapped.

    $MILLRACE_HOME/class-data/<name>-<stamp>.jsa     <stamp>: of the JVM and of what it runs

With one a Spark driver reads its first records after 8 s instead of 13, a broker serves after 1.1 s instead of 2.1
(measured; JDK 17, two cores). `make setup` makes them.

Guarantees: an archive appears only when it is whole; that of another JVM is never taken; without one a program starts
as ever. Format and options: JEP 350, dynamic archives of application class data.
"""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory

from millrace.errors import Fatal
from millrace.home import home


def java_program() -> Path:
    """Java 17 or later (``make setup`` checks the version), from JAVA_HOME or PATH. Fatal MR-8002 without one."""
    named = os.environ.get("JAVA_HOME")
    found = Path(named) / "bin" / "java" if named else shutil.which("java")
    if not found or not os.access(found, os.X_OK):
        raise Fatal(
            "MR-8002",
            "Java is missing",
            fix="apt-get install openjdk-17-jre-headless (or set JAVA_HOME)",
        )
    return Path(found)


@dataclass(frozen=True, slots=True)
class ClassData:
    """The archive of one program; ``version`` tells what it runs."""

    name: str
    version: str

    @property
    def path(self) -> Path:
        """Where it is, if it is there."""
        program = java_program().resolve()
        classes = program.parents[1] / "lib" / "modules"
        found = classes.stat() if classes.is_file() else program.stat()
        told = f"{program} {found.st_size} {found.st_mtime_ns} {self.version}"
        stamp = sha256(told.encode()).hexdigest()[:12]
        return home() / "class-data" / f"{self.name}-{stamp}.jsa"

    def options(self) -> tuple[str, ...]:
        """For the command line: the archive, if there is one."""
        path = self.path
        return (f"-XX:SharedArchiveFile={path}",) if path.is_file() else ()

    @contextmanager
    def making(self) -> Iterator[tuple[str, ...]]:
        """Options for a JVM that starts and ends in the block and does there what others will do at their start."""
        folder = self.path.parent
        folder.mkdir(exist_ok=True)
        with TemporaryDirectory(dir=folder) as scratch:
            made = Path(scratch) / "archive"
            yield (f"-XX:ArchiveClassesAtExit={made}", "-Xlog:cds=off", "-Xlog:cds+dynamic=off")
            if made.is_file():
                for old in folder.glob(f"{self.name}-*.jsa"):
                    old.unlink()
                made.rename(self.path)
