"""Fresh data directories, made once and copied: initialising one takes seconds, a copy tenths.

    $MILLRACE_HOME/templates/<flavour>-<stamp>/

Guarantees: a template appears only when it is whole (renamed into place), is made once however many ask at a time, and
belongs to the exact program that made it.
"""

import fcntl
import shutil
from collections.abc import Callable
from pathlib import Path
from tempfile import mkdtemp

from deploy.servers.dialect import Dialect
from millrace.home import home


def database_template(dialect: Dialect) -> Path:
    """A data directory that ``dialect`` initialised; copy it, never start a server in it."""
    log = home() / "templates" / f"{dialect.flavour}.log"
    return template(
        f"{dialect.flavour}-{dialect.stamp()}", lambda folder: dialect.initialise(folder, log)
    )


def template(name: str, make: Callable[[Path], None]) -> Path:
    """The folder of this name, made by ``make(empty folder)`` when it is not there yet."""
    root = home() / "templates"
    root.mkdir(exist_ok=True)
    final = root / name
    with (root / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not final.exists():
            scratch = Path(mkdtemp(dir=root))
            try:
                make(scratch)
                scratch.rename(final)
            finally:
                shutil.rmtree(scratch, ignore_errors=True)
    return final
