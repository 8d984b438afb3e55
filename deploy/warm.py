"""``make setup``'s last step: compile the kernels of both halves, saying so when it takes long.

Each half in a process of its own, as it will run; a second run finds the machine code and takes a second or two.
"""

import subprocess
import sys
import time

HALVES = ("producer.warm", "consumer.warm")
TOLD_AFTER_S = 3.0


def main() -> None:
    """Compile; the exit code of the half that failed."""
    begin = time.monotonic()
    running = [subprocess.Popen((sys.executable, "-m", half)) for half in HALVES]
    is_told = False
    while any(process.poll() is None for process in running):
        if not is_told and time.monotonic() - begin > TOLD_AFTER_S:
            print("compiling the kernels (about a minute, once)", flush=True)
            is_told = True
        time.sleep(0.1)
    if is_told:
        print(f"compiled in {time.monotonic() - begin:.0f} s")
    sys.exit(max(process.returncode for process in running))


if __name__ == "__main__":
    main()
