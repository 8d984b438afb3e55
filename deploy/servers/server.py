"""The base of every local server: launch, wait, stop, kill, pause, and discard with its folder."""

import shutil
from abc import ABC, abstractmethod
from pathlib import Path

from millrace.deploy.servers.process import ProcessSpec, ServerProcess


class Server(ABC):
    """A process that owns ``folder``. After ``kill`` or ``stop``, ``start`` continues with the same data and port."""

    def __init__(self, folder: Path, *, dies_with_parent: bool = True) -> None:
        self.folder = folder
        self._dies_with_parent = dies_with_parent
        self._process: ServerProcess | None = None

    @abstractmethod
    def launch(self) -> None: ...

    @abstractmethod
    def wait_ready(self) -> None:
        """Wait until the server serves. Fatal MR-8004 with the end of its log."""

    @property
    def process(self) -> ServerProcess:
        """The server's process. RuntimeError before ``launch``."""
        if self._process is None:
            raise RuntimeError(f"the server in {self.folder} was not launched")
        return self._process

    def start(self) -> None:
        self.launch()
        self.wait_ready()

    def stop(self) -> None:
        if self._process is not None:
            self._process.stop()

    def discard(self) -> None:
        if self._process is not None:
            self._process.kill()
        shutil.rmtree(self.folder, ignore_errors=True)

    def kill(self) -> None:
        self.process.kill()

    def pause(self) -> None:
        """Send SIGSTOP: the server keeps its connections and does not answer."""
        self.process.pause()

    def resume(self) -> None:
        self.process.resume()

    def is_alive(self) -> bool:
        return self._process is not None and self._process.is_alive()

    def _launch(self, spec: ProcessSpec) -> None:
        self._process = ServerProcess(spec, dies_with_parent=self._dies_with_parent)
        self._process.launch()
