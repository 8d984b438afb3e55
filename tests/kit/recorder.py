"""Records commands in a terminal, as a user sees them: a real pty, the real time of each output."""

import fcntl
import os
import pty
import select
import struct
import subprocess
import termios
import time
from collections.abc import Callable, Mapping

from millrace.deploy.site.cast import HEIGHT, WIDTH, Recording

COMMAND_S = 1200.0
_CHARACTER_S = 0.03  # between two keys
_READ_BYTES = 65_536


class Recorder:
    """A terminal whose commands are typed one after the other."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        """The environment is added to that of the tests."""
        self.recording = Recording()
        self._environment = {**os.environ, "TERM": "xterm-256color", **environment}
        self._now_s = 0.0

    def run(self, command: str, answer: tuple[str, Callable[[], object]] | None = None) -> str:
        """Type a command and return its output. If the output has the text of ``answer``, its function is called.

        Raises AssertionError if the command fails or does not end in time.
        """
        self.recording.events.append((self._now_s, "m", command))
        self._write("\x1b[32m$\x1b[0m ")
        for character in command:
            self._now_s += _CHARACTER_S
            self._write(character)
        self._write("\r\n")
        before = self._now_s
        master, terminal = pty.openpty()
        fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", HEIGHT, WIDTH, 0, 0))
        start = time.monotonic()
        try:
            process = subprocess.Popen(
                ["bash", "-c", command],
                stdin=terminal,
                stdout=terminal,
                stderr=terminal,
                env=self._environment,
                start_new_session=True,
            )
            os.close(terminal)
            try:
                output = self._read(process, master, start, before, answer)
            finally:
                process.kill()
                process.wait()
        finally:
            os.close(master)
        assert process.returncode == 0, f"{command}\n{output}"
        return output

    def _read(
        self,
        process: "subprocess.Popen[bytes]",
        screen: int,
        start: float,
        before: float,
        answer: tuple[str, Callable[[], object]] | None,
    ) -> str:
        """Read until the command has ended; what it left in the background may hold the terminal open."""
        bytes_read = b""
        written = 0
        has_ended = False
        while not has_ended:
            assert time.monotonic() - start < COMMAND_S, bytes_read.decode(errors="replace")
            has_ended = process.poll() is not None
            while select.select([screen], [], [], 0.05)[0]:
                try:
                    piece = os.read(screen, _READ_BYTES)
                except OSError:  # EIO: every writer has closed the terminal
                    piece = b""
                if not piece:
                    process.wait(COMMAND_S)
                    has_ended = True
                    break
                bytes_read += piece
                text = bytes_read.decode(errors="ignore")
                self._now_s = before + time.monotonic() - start
                self._write(text[written:])
                written = len(text)
                if answer and answer[0] in text:
                    answer[1]()
                    answer = None
        return bytes_read.decode()

    def _write(self, text: str) -> None:
        self.recording.events.append((self._now_s, "o", text))
