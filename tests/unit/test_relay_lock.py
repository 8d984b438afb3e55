"""The lock of a relay directory admits one writer at a time."""

from contextlib import suppress
from pathlib import Path

from millrace.errors import Retryable
from millrace.producer.relay.writer import RelayLog
from millrace.schemas.gtid import Flavour
from tests.kit.binlog.plain_files import BinlogFile
from tests.kit.relay.lay import NAME, grow_file, write_file


def test_second_writer_on_a_directory_is_harmless(tmp_path: Path) -> None:
    """It comes while the first is inside a source transaction, is refused, and may come again."""
    file = BinlogFile().transaction()
    relay = RelayLog.open(tmp_path, flavour=Flavour.MYSQL)
    relay.begin_subdir("server-a")
    write_file(relay, NAME, file)
    whole = len(file.data)
    cut = len(file.transaction().data) - 40
    grow_file(relay, file.data[whole:cut], end=whole)
    with suppress(Retryable):
        RelayLog.open(tmp_path, flavour=Flavour.MYSQL).close()
    grow_file(relay, file.data[cut:], end=len(file.data))
    relay.close()
    written = (tmp_path / "server-a.000001" / NAME).read_bytes()
    assert written == file.data, "two writers made one file that none of them wrote"
