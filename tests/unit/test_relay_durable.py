"""The note of the durable end, which other processes read."""

from pathlib import Path

from millrace.producer.relay.durable_end import DURABLE_NAME, NOTE_BYTES, note_durable, read_durable
from millrace.schemas.place import Coordinates

AT = Coordinates("3e11fa47-71ca-11e1-9e33-c80aa9429562.000001", "mysql-bin.000017", 1234)


def test_noted_end_is_read_back(tmp_path: Path) -> None:
    """Also after it was overwritten in place."""
    assert read_durable(tmp_path) is None
    note_durable(tmp_path, AT)
    assert read_durable(tmp_path) == AT
    note_durable(tmp_path, AT.at(5))
    assert read_durable(tmp_path) == AT.at(5)
    assert (tmp_path / DURABLE_NAME).stat().st_size == NOTE_BYTES


def test_torn_note_is_not_believed(tmp_path: Path) -> None:
    """Any changed byte, or a cut."""
    note_durable(tmp_path, AT)
    path = tmp_path / DURABLE_NAME
    whole = path.read_bytes()
    for place in (0, 9, 40, NOTE_BYTES - 1):
        path.write_bytes(whole[:place] + b"\x01" + whole[place + 1 :])
        assert read_durable(tmp_path) is None
    path.write_bytes(whole[:100])
    assert read_durable(tmp_path) is None


def test_disk_error_does_not_stop_the_writer(tmp_path: Path) -> None:
    """The note is a hint: without it, nothing is durable that can be named."""
    note_durable(tmp_path, AT)
    assert read_durable(tmp_path) == AT
    (tmp_path / DURABLE_NAME).unlink()
    (tmp_path / DURABLE_NAME).mkdir()
    note_durable(tmp_path, AT)
    (tmp_path / DURABLE_NAME).rmdir()
    assert read_durable(tmp_path) is None
