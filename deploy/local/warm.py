"""The last step of ``make setup``: compile the kernels of both halves, make the JVM archives.

Each module runs in its own process, as it will later. A second run finds everything and takes a second or two.
A step that takes longer than ``ANNOUNCE_AFTER_S`` is announced on standard output.
"""

import subprocess
import sys
import time
from tempfile import TemporaryFile

STEPS = (
    ("compiling the kernels", ("producer.warm", "consumer.warm")),
    (
        "making the JVM archives",
        ("consumer.spark.jvm_archive", "deploy.servers.jvm_archives"),
    ),
)
ANNOUNCE_AFTER_S = 3.0
POLL_S = 0.1


def main() -> None:
    """Run every step; exit with the status of the first that fails."""
    for title, modules in STEPS:
        failed = _run(title, modules)
        if failed:
            sys.exit(failed)


def _run(title: str, modules: tuple[str, ...]) -> int:
    begin = time.monotonic()
    with TemporaryFile() as log:
        running = [
            subprocess.Popen((sys.executable, "-m", module), stderr=log) for module in modules
        ]
        _wait(title, running, begin)
        status = max(abs(process.wait()) for process in running)
        if status:
            log.seek(0)
            sys.stderr.write(log.read().decode(errors="replace"))
    return status


def _wait(title: str, running: "list[subprocess.Popen[bytes]]", begin: float) -> None:
    is_announced = False
    while any(process.poll() is None for process in running):
        if not is_announced and time.monotonic() - begin > ANNOUNCE_AFTER_S:
            print(f"{title} (about a minute, once)", flush=True)
            is_announced = True
        time.sleep(POLL_S)
    if is_announced:
        print(f"{title}: {time.monotonic() - begin:.0f} s", flush=True)


if __name__ == "__main__":
    main()
