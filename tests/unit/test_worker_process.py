"""A worker's process handles its signal and ends, regardless of its threads."""

import subprocess
import sys
import textwrap

RUN_S = 60


def _ran(body: str) -> "subprocess.CompletedProcess[str]":
    """Run a separate process that has ``worker``."""
    text = (
        "import os, signal, threading, time\nfrom millrace.zk.run import worker\n"
        + textwrap.dedent(body)
    )
    return subprocess.run(
        [sys.executable, "-c", text], capture_output=True, text=True, timeout=RUN_S, check=False
    )


def test_signal_delivered_to_another_thread_is_handled() -> None:
    """The system wakes that thread, and only the main thread may act on the signal."""
    ended = _ran(
        """
        stop = worker.stop_on_signals()
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})

        def loop(stop):
            time.sleep(0.1)  # the main thread waits by then
            os.kill(os.getpid(), signal.SIGTERM)
            return stop.wait()

        def other():
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
            threading.Event().wait()

        threading.Thread(target=other, daemon=True).start()
        print("ended", worker._in_thread(loop, lambda: None, stop))
        """
    )
    assert ended.stdout == "ended True\n", ended.stderr


def test_process_stuck_at_exit_dumps_its_threads_and_ends() -> None:
    """The process manager waits for its end, which foreign code may delay."""
    ended = _ran(
        """
        worker.SHUTDOWN_S_MAX = 0.2
        stop = threading.Event()
        stop.set()

        def held_up(_stop):
            threading.Event().wait()

        worker._in_thread(held_up, lambda: None, stop)
        """
    )
    assert ended.returncode == 1
    assert "held_up" in ended.stderr
