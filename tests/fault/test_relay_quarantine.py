"""Killed while a damaged file is set aside: no reader ever sees its bytes."""

from pathlib import Path

from millrace.errors import MillraceError
from millrace.producer.relay.quarantine import AFTER_SET_ASIDE, find_damage, set_aside
from millrace.schemas.place import Coordinates
from tests.kit.forked import killed_at
from tests.kit.relay.compress import names_in
from tests.kit.relay.damaged import NAMES, flip, lay_log, open_log
from tests.kit.relay.relay import read_everything

SUBDIR = "server-a.000001"


def test_killed_quarantine_shows_no_damaged_bytes(tmp_path: Path) -> None:
    """After the kill there is a gap."""
    files = lay_log(tmp_path)
    flip(tmp_path / SUBDIR / NAMES[1], files[NAMES[1]].ends[1] + 30)

    def set_it_aside() -> None:
        relay = open_log(tmp_path)
        damage = find_damage(relay, Coordinates(SUBDIR, NAMES[1], 4))
        assert damage is not None
        set_aside(relay, damage)

    killed_at(f"{AFTER_SET_ASIDE}:kill", set_it_aside)
    relay = open_log(tmp_path)
    names = names_in(tmp_path / SUBDIR)
    assert f"{NAMES[1]}.damaged" in names
    assert NAMES[1] not in names
    seen = {}
    try:
        seen = read_everything(relay)
    except MillraceError as error:
        seen["error"] = error.code.encode()
    relay.close()
    assert f"{SUBDIR}/{NAMES[1]}" not in seen
