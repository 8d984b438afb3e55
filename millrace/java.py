"""The Java program, and archives of class data: what a JVM loads at its start, ready to be mapped.

    $MILLRACE_HOME/class-data/<name>-<stamp>-<bytes>.jsa     <stamp>: of the JVM and the jars that it runs

With one a Spark driver reads its first records after 8 s instead of 13, a broker serves after 1.1 s instead of 2.1
(measured; JDK 17, two cores). `make setup` makes them.

Guarantees: an archive is taken only when it is whole, and of this JVM and these jars; without one a program starts as
ever. Format and options: JEP 350, dynamic archives of application class data.
"""

import fcntl
import os
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from tempfile import mkdtemp

from millrace.errors import Fatal
from millrace.home import home

KEPT_MAX = 3
ORDERLY = (0, 143)  # how a JVM ends when it is asked to


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
    """The archive of one program; ``classpath``: the jars that it runs."""

    name: str
    classpath: Sequence[Path]

    def options(self) -> tuple[str, ...]:
        """For the command line: the archive, if there is a whole one."""
        for path in self._found():
            _, _, size = path.stem.rpartition("-")
            if path.stat().st_size == int(size):
                return (f"-XX:SharedArchiveFile={path}",)
        return ()

    def make(self, run: Callable[[Sequence[str]], None]) -> None:
        """``run(options)`` starts and ends a JVM that does what others will do at their start; raises if it fails.

        Once: nothing where there is an archive, or where one could not be made.
        """
        root = _folder()
        if " " in str(root):  # options are split at blanks
            return
        with (root / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            tried = root / f"{self.name}-{self._stamp}.tried"
            if self.options() or tried.exists():
                return
            for left in (*root.glob("making-*"), *self._outdated()):
                shutil.rmtree(left) if left.is_dir() else left.unlink()
            scratch = Path(mkdtemp(prefix="making-", dir=root))
            try:
                made = scratch / "archive"
                run((f"-XX:ArchiveClassesAtExit={made}", "-Xlog:disable", "-Xlog:all=error:stderr"))
                if made.is_file():
                    with made.open("rb") as file:
                        os.fsync(file.fileno())  # a JVM that is given half an archive crashes
                        size = os.fstat(file.fileno()).st_size
                    made.rename(root / f"{self.name}-{self._stamp}-{size}.jsa")
                else:
                    tried.touch()
            except Exception:
                tried.touch()
                raise
            finally:
                shutil.rmtree(scratch)

    def _found(self) -> list[Path]:
        return list(_folder().glob(f"{self.name}-{self._stamp}-*.jsa"))

    def _outdated(self) -> list[Path]:
        """All but the newest few: other environments may share the folder."""
        found = sorted(
            _folder().glob(f"{self.name}-*-*.jsa"), key=lambda path: -path.stat().st_mtime
        )
        return found[KEPT_MAX - 1 :]

    @property
    def _stamp(self) -> str:
        """Java takes an archive only for the same program and the same jars, as they lie there."""
        program = java_program().resolve()
        classes = program.parents[1] / "lib" / "modules"
        digest = sha256(str(program).encode())
        for path in (classes if classes.is_file() else program, *self.classpath):
            found = path.stat()
            digest.update(f"{path} {found.st_size} {found.st_mtime_ns}\n".encode())
        return digest.hexdigest()[:12]


def _folder() -> Path:
    folder = home() / "class-data"
    folder.mkdir(exist_ok=True)
    return folder
