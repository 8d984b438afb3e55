"""The TCP connections of this process, found through its file descriptors."""

import os
import socket
from contextlib import suppress
from pathlib import Path


def connections_to(port: int) -> set[int]:
    """File descriptors of this process's connections to ``port``."""
    return {int(link.name) for link in Path("/proc/self/fd").iterdir() if _peer_port(link) == port}


def _peer_port(link: Path) -> int:
    """0 for anything but a TCP connection."""
    with suppress(OSError):  # closed meanwhile, or not connected
        if link.readlink().name.startswith("socket:"):
            with duplicate(int(link.name)) as wire:
                if wire.family in (socket.AF_INET, socket.AF_INET6):
                    return int(wire.getpeername()[1])
    return 0


def duplicate(descriptor: int) -> socket.socket:
    """A socket object for the same connection; closing it leaves the connection open."""
    return socket.socket(fileno=os.dup(descriptor))
