"""Prepared data directories, made once and then copied: initializing one takes seconds, copying it tenths.

    $MILLRACE_HOME/templates/<flavour>-<stamp>/

Guarantees: a template is complete when it appears (renamed into place). Concurrent callers make it once. It is used
only by the program version that made it.
"""

import fcntl
import shutil
from collections.abc import Callable
from pathlib import Path
from tempfile import mkdtemp

from millrace.deploy.servers.dialect import Dialect
from millrace.home_folder import home


def database_template(dialect: Dialect) -> Path:
    """A data directory that ``dialect`` initialized. Copy it. Never start a server in it."""
    log = home() / "templates" / f"{dialect.flavour}.log"
    return template(
        f"{dialect.flavour}-{dialect.stamp()}", lambda folder: dialect.initialize(folder, log)
    )


def template(name: str, make: Callable[[Path], None]) -> Path:
    """The folder of this name. ``make(empty folder)`` fills it if it does not exist."""
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
