"""What every server of ours can: be launched, waited for, stopped, killed, paused, and thrown away with its folder."""

import shutil
from abc import ABC, abstractmethod
from pathlib import Path

from deploy.servers.process import ProcessSpec, ServerProcess


class Server(ABC):
    """A process in ``folder``, its own. After ``kill`` or ``stop``, ``start`` goes on with the same data and port."""

    def __init__(self, folder: Path, *, dies_with_parent: bool = True) -> None:
        self.folder = folder
        self._dies_with_parent = dies_with_parent
        self._process: ServerProcess | None = None

    @abstractmethod
    def launch(self) -> None:
        """Start the process and return at once."""

    @abstractmethod
    def wait_ready(self) -> None:
        """Until it serves; Fatal MR-8004 with its log's end."""

    @property
    def process(self) -> ServerProcess:
        """Its process (an error before ``launch``)."""
        if self._process is None:
            raise RuntimeError(f"the server in {self.folder} was not launched")
        return self._process

    def start(self) -> None:
        """Launch it and wait until it serves."""
        self.launch()
        self.wait_ready()

    def stop(self) -> None:
        """A clean shutdown; data stays."""
        if self._process is not None:
            self._process.stop()

    def discard(self) -> None:
        """The quick end, when nobody needs the data any more: SIGKILL, and the folder is removed."""
        if self._process is not None:
            self._process.kill()
        shutil.rmtree(self.folder, ignore_errors=True)

    def kill(self) -> None:
        """SIGKILL, as a crash."""
        self.process.kill()

    def pause(self) -> None:
        """SIGSTOP: it keeps its connections and answers nothing."""
        self.process.pause()

    def resume(self) -> None:
        """SIGCONT."""
        self.process.resume()

    def is_alive(self) -> bool:
        """Whether its process runs."""
        return self._process is not None and self._process.is_alive()

    def _launch(self, spec: ProcessSpec) -> None:
        self._process = ServerProcess(spec, dies_with_parent=self._dies_with_parent)
        self._process.launch()
