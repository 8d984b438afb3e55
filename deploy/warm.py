"""``make setup``'s last step: compile the kernels of both halves, make Java's class data; what takes long is told.

Each in a process of its own, as it will run; a second run finds everything and takes a second or two.
"""

import subprocess
import sys
import time
from tempfile import TemporaryFile

STEPS = (
    ("compiling the kernels", ("producer.warm", "consumer.warm")),
    ("making Java's class data", ("consumer.class_data", "deploy.class_data")),
)
TOLD_AFTER_S = 3.0
LOOK_S = 0.1


def main() -> None:
    """Every step; the exit code of the first that failed."""
    for told, modules in STEPS:
        failed = _run(told, modules)
        if failed:
            sys.exit(failed)


def _run(told: str, modules: tuple[str, ...]) -> int:
    begin = time.monotonic()
    with TemporaryFile() as log:
        running = [
            subprocess.Popen((sys.executable, "-m", module), stderr=log) for module in modules
        ]
        _wait(told, running, begin)
        status = max(abs(process.wait()) for process in running)
        if status:
            log.seek(0)
            sys.stderr.write(log.read().decode(errors="replace"))
    return status


def _wait(told: str, running: "list[subprocess.Popen[bytes]]", begin: float) -> None:
    is_told = False
    while any(process.poll() is None for process in running):
        if not is_told and time.monotonic() - begin > TOLD_AFTER_S:
            print(f"{told} (about a minute, once)", flush=True)
            is_told = True
        time.sleep(LOOK_S)
    if is_told:
        print(f"{told}: {time.monotonic() - begin:.0f} s", flush=True)


if __name__ == "__main__":
    main()
