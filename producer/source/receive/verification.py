"""Decides when the relay log is known to be what the member has: readers that start wait for it.

the relay file continues             its end was compared with the bytes that the member sends (``dump_stream``)
the sub-directory is the first one   at once: there is nothing to compare
it continues another member's        the source transactions at the end of that one were compared by canonical
                                     checksum (``overlap``), and the sub-directory was joined
"""

import threading
from collections.abc import Callable
from dataclasses import dataclass, field

from millrace.producer.relay.layout import Subdir
from millrace.producer.relay.writer import RelayLog
from millrace.producer.source.receive.overlap import Overlap


@dataclass(frozen=True, slots=True)
class Joint:
    """A sub-directory to be joined with the preceding one, and the end of that one."""

    subdir: Subdir
    overlap: Overlap


@dataclass(slots=True)
class Verifier:
    """The state of one connection. ``on_verified`` is called once, in the receiver's thread."""

    relay: RelayLog
    verified: threading.Event
    on_verified: Callable[[], None]
    joint: Joint | None = field(default=None)

    def compared(self) -> None:
        if self.joint is None:
            self._verify()

    def appended(self) -> None:
        """Join the sub-directory once it has all that the relay log had. Retryable MR-1037."""
        if self.joint is None or not self.joint.overlap.is_reached():
            return
        self.joint.overlap.compare()
        self.relay.join(self.joint.subdir)
        self.joint = None
        self._verify()

    def _verify(self) -> None:
        if not self.verified.is_set():
            self.verified.set()
            self.on_verified()
