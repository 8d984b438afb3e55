"""Images of rows of a snapshot, from the packets that a server would send for them."""

from collections.abc import Sequence

from millrace.producer.snapshot.images import Images, read_images
from millrace.producer.snapshot.select_list import Selection
from tests.kit.text_protocol import EOF, FIRST, result


class Packets:
    """``RowPackets`` from memory. ``cuts``: how many bytes arrive at once, then all."""

    def __init__(self, content: bytes, cuts: Sequence[int] = ()) -> None:
        self.sequence = FIRST
        self._content = memoryview(content)
        self._cuts = iter(cuts)

    def read(self, room: memoryview) -> int:
        """See ``RowPackets``."""
        count = min(len(room), next(self._cuts, len(room)), len(self._content))
        assert count, "it reads beyond the result"
        room[:count] = self._content[:count]
        self._content = self._content[count:]
        return count

    def end(self, packet: bytes) -> None:
        """See ``RowPackets``."""
        assert packet == EOF
        assert not self._content


def images_of(selection: Selection, rows: Sequence[Sequence[bytes | None]]) -> Images:
    """The images of rows as SELECT returns them, without columns of a key."""
    return read_images(Packets(result(rows)), selection, keys=0, bytes_max=1 << 20)
