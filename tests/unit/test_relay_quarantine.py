"""A damaged closed file is set aside, and the exact interval of GTIDs that it held is known."""

from pathlib import Path

import pytest

from millrace.errors import Fatal, Retryable
from millrace.producer.relay.quarantine import find_damage, set_aside, set_aside_damaged
from millrace.producer.relay.reader import RelayReader
from millrace.schemas.gtid import Flavour, parse_gtid_set
from millrace.schemas.place import Coordinates
from tests.kit.binlog.plain_files import SERVER
from tests.kit.relay.compress import compress, names_in
from tests.kit.relay.damaged import NAMES, flip, lay_log, open_log
from tests.kit.relay.relay import read_everything

SUBDIR = "server-a.000001"


def second(pos: int = 4) -> Coordinates:
    """A place in the second file."""
    return Coordinates(SUBDIR, NAMES[1], pos)


@pytest.mark.parametrize("is_packed", [False, True])
def test_damaged_file_is_set_aside(tmp_path: Path, is_packed: bool) -> None:
    """Readers meet a gap, and its transactions are known."""
    files = lay_log(tmp_path)
    if is_packed:
        packing = open_log(tmp_path)
        compress(packing)
        packing.close()
    stored = NAMES[1] + (".zst" if is_packed else "")
    flip(tmp_path / SUBDIR / stored, files[NAMES[1]].ends[2] + 30 if not is_packed else 60)
    relay = open_log(tmp_path)
    assert find_damage(relay, Coordinates(SUBDIR, NAMES[0], 4)) is None
    damage = find_damage(relay, second())
    assert damage is not None
    set_aside(relay, damage)
    assert str(damage.lost) == f"{SERVER}:{5 if is_packed else 7}-8"
    assert f"{stored}.damaged" in names_in(tmp_path / SUBDIR)
    with RelayReader(relay) as reader:
        found = reader.seek(parse_gtid_set(Flavour.MYSQL, f"{SERVER}:1-4"))
        assert found is None, "a reader started before the gap"
        with pytest.raises(Retryable, match="is not in the relay log"):
            reader.after_file(Coordinates(SUBDIR, NAMES[0], len(files[NAMES[0]].data)))
    relay.close()


def test_readers_error_leads_to_the_damaged_file(tmp_path: Path) -> None:
    """The error names the place, so the file can be set aside; an error without a place does nothing."""
    files = lay_log(tmp_path)
    relay = open_log(tmp_path)
    assert read_everything(relay)
    flip(tmp_path / SUBDIR / NAMES[1], files[NAMES[1]].ends[2] + 30)
    with pytest.raises(Fatal) as caught:
        read_everything(relay)
    assert set_aside_damaged(relay, Fatal("MR-2004", "elsewhere")) is None
    damage = set_aside_damaged(relay, caught.value)
    assert damage is not None
    assert str(damage.lost) == f"{SERVER}:7-8"
    assert set_aside_damaged(relay, caught.value) is None, "it is gone"
    relay.close()
    relay = open_log(tmp_path)
    flip(tmp_path / SUBDIR / NAMES[2], 30)
    with pytest.raises(Fatal) as caught:
        relay.visible_end(Coordinates(SUBDIR, NAMES[2], 4))
    damage = set_aside_damaged(relay, caught.value)
    assert damage is not None
    assert damage.at.file == NAMES[2]
    relay.close()


def test_file_being_written_is_never_set_aside(tmp_path: Path) -> None:
    """Its damage is the receiver's: it is cut back at the next start."""
    lay_log(tmp_path)
    relay = open_log(tmp_path)
    assert find_damage(relay, Coordinates(SUBDIR, NAMES[3], 4)) is None
    flip(tmp_path / SUBDIR / NAMES[2], 300)
    damage = find_damage(relay, Coordinates(SUBDIR, NAMES[2], 4))
    assert damage is not None
    with pytest.raises(Fatal, match="being written"):
        set_aside(relay, type(damage)(Coordinates(SUBDIR, NAMES[3], 4), "why", damage.lost))
    relay.close()
