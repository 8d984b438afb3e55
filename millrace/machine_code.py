"""Whether the kernels of capture are compiled, without importing the compiler, and compiling them in the background.

A mark in the home folder names the code that was compiled: every Python file of `millrace`, `schemas` and `producer`,
and numba's version. Code without a mark may be compiled all the same; then compiling it again takes two seconds.
"""

import fcntl
import hashlib
import os
import subprocess
import sys
import threading
import warnings
from functools import cache
from importlib import metadata
from pathlib import Path

from millrace.home_folder import home
from millrace.log import get_logger

INTERPRETED = "NUMBA_DISABLE_JIT"  # numba's variable, read when it is imported
_ROOT = Path(__file__).parent
_FOLDERS = (".", "schemas", "producer")  # a checkout has links to the other two
_NICE = 10

log = get_logger("machine_code")


def is_compiled() -> bool:
    """Whether a process that runs the kernels now need not compile them first."""
    return _mark().exists()


def note_compiled() -> None:
    """Every kernel of capture has run in this process, and its machine code is in the home folder."""
    _mark().parent.mkdir(parents=True, exist_ok=True)
    _mark().touch()


def is_compiling() -> bool:
    """Whether this process compiles kernels now, so that a task in it may wait for that."""
    module = sys.modules.get("millrace.compiled")  # its import takes a second
    return module is not None and bool(module.compiling.is_now())


def compile_ahead() -> None:
    """Compile the kernels before the first task needs them, unless they are compiled. Returns at once."""
    if INTERPRETED in os.environ:
        return
    try:
        if not is_compiled():
            compile_in_background()
    except (
        OSError
    ) as error:  # the first task compiles, or reports that the home folder can't be written
        log.warning("kernels are not compiled ahead", error=error)


def interpret() -> bool:
    """Run the kernels of this process as plain Python; False if numba is imported already."""
    if "numba" in sys.modules:
        return False
    os.environ[INTERPRETED] = "1"
    # kernels count on integers and doubles that wrap or become infinite
    warnings.filterwarnings("ignore", message="overflow encountered", category=RuntimeWarning)
    return True


def compile_in_background() -> None:
    """Start a process that compiles the kernels, unless one runs. It survives this one, and gives way to it."""
    environment = {name: value for name, value in os.environ.items() if name != INTERPRETED}
    nothing = subprocess.DEVNULL
    _mark().parent.mkdir(parents=True, exist_ok=True)
    with _mark().with_suffix(".lock").open("w") as lock:  # the new process holds it until its end
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return
        process = subprocess.Popen(
            [
                sys.executable,
                "-P",  # the folder of the user may have files with names of modules
                "-c",
                f"import os, sys; os.nice({_NICE}); sys.path[:] = {sys.path!r};"
                " from millrace.producer.task.warm_up import warm; warm()",
            ],
            stdin=nothing,
            stdout=nothing,
            stderr=nothing,
            env=environment,
            start_new_session=True,
            pass_fds=(lock.fileno(),),
        )
    # no zombie in a worker that runs for months
    threading.Thread(target=process.wait, name="compiler", daemon=True).start()


@cache
def _mark() -> Path:
    digest = hashlib.sha256(metadata.version("numba").encode())
    for file in sorted({path for name in _FOLDERS for path in (_ROOT / name).rglob("*.py")}):
        digest.update(str(file.relative_to(_ROOT)).encode() + file.read_bytes())
    return home() / "kernels" / f"capture-{digest.hexdigest()[:16]}.compiled"
