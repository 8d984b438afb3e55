"""The Java program, and JVM archives: the classes that a program loads at its start, ready to be mapped into memory.

    $MILLRACE_HOME/jvm-archives/<name>-<stamp>-<bytes>.jsa     <stamp>: of the JVM and the jars that it runs

With an archive, a Spark driver reads its first records after 8 s instead of 13 s, and a broker serves after 1.1 s
instead of 2.1 s (measured; JDK 17, two cores). `make setup` makes them.

Guarantees: an archive is used only if it is complete and was made by this JVM from these jars. Without one a program
starts normally. Format and options: JEP 350, dynamic class-data-sharing archives.
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
from millrace.home_folder import home

KEPT_MAX = 3
CLEAN_EXITS = (0, 143)  # exit statuses of a JVM that was asked to end


def java_program() -> Path:
    """Java 17 or later (``make setup`` checks the version), from JAVA_HOME or PATH. Fatal MR-8002 if there is none."""
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
class JvmArchive:
    """The JVM archive of one program. ``classpath`` lists the jars that the program runs."""

    name: str
    classpath: Sequence[Path]

    def options(self) -> tuple[str, ...]:
        """Options for the java command line: the archive if a complete one exists, else none."""
        for path in self._found():
            _, _, size = path.stem.rpartition("-")
            if path.stat().st_size == int(size):
                return (f"-XX:SharedArchiveFile={path}",)
        return ()

    def make(self, run: Callable[[Sequence[str]], None]) -> None:
        """Make the archive. ``run(options)`` starts a JVM, has it do what each start does, and ends it.

        Does nothing if an archive exists or an earlier attempt failed. An error of ``run`` is raised.
        """
        root = _folder()
        if " " in str(root):  # Spark and Java split options at spaces
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
                        os.fsync(file.fileno())  # a JVM crashes on half an archive
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
        """All but the newest archives; a few stay, because environments may share the folder."""
        found = sorted(
            _folder().glob(f"{self.name}-*-*.jsa"), key=lambda path: -path.stat().st_mtime
        )
        return found[KEPT_MAX - 1 :]

    @property
    def _stamp(self) -> str:
        """Java accepts an archive only for the same program and the same jars (path, size, time)."""
        program = java_program().resolve()
        classes = program.parents[1] / "lib" / "modules"
        digest = sha256(str(program).encode())
        for path in (classes if classes.is_file() else program, *self.classpath):
            found = path.stat()
            digest.update(f"{path} {found.st_size} {found.st_mtime_ns}\n".encode())
        return digest.hexdigest()[:12]


def _folder() -> Path:
    folder = home() / "jvm-archives"
    folder.mkdir(exist_ok=True)
    return folder
