"""Killed while a damaged file is set aside or put back: no reader ever sees other bytes."""

from pathlib import Path

import pytest

from millrace.errors import MillraceError
from producer.relay.quarantine import (
    AFTER_PUT_BACK,
    AFTER_SET_ASIDE,
    BEFORE_PUT_BACK,
    fetched_path,
    find_damage,
    put_back,
    set_aside,
)
from schemas.place import Coordinates
from tests.kit.forked import killed_at
from tests.kit.relay.compress import names_in
from tests.kit.relay.damaged import NAMES, flip, lay_log, open_log
from tests.kit.relay.relay import read_everything

SUBDIR = "server-a.000001"


@pytest.mark.parametrize("point", [AFTER_SET_ASIDE, BEFORE_PUT_BACK, AFTER_PUT_BACK])
def test_killed_quarantine_shows_no_damaged_bytes(point: str, tmp_path: Path) -> None:
    """After the kill there is a gap, or the server's file."""
    files = lay_log(tmp_path)
    flip(tmp_path / SUBDIR / NAMES[1], files[NAMES[1]].ends[1] + 30)

    def replace_it() -> None:
        relay = open_log(tmp_path)
        damage = find_damage(relay, Coordinates(SUBDIR, NAMES[1], 4))
        assert damage is not None
        wanted = set_aside(relay, damage)
        fetched_path(relay, wanted).write_bytes(files[NAMES[1]].data)
        put_back(relay, wanted)

    killed_at(f"{point}:kill", replace_it)
    relay = open_log(tmp_path)
    names = names_in(tmp_path / SUBDIR)
    assert f"{NAMES[1]}.damaged" in names
    assert f"{NAMES[1]}.new" not in names
    assert (NAMES[1] in names) == (point == AFTER_PUT_BACK)
    seen = {}
    try:
        seen = read_everything(relay)
    except MillraceError as error:
        seen["error"] = error.code.encode()
    relay.close()
    if point == AFTER_PUT_BACK:
        assert seen[f"{SUBDIR}/{NAMES[1]}"] == files[NAMES[1]].data[4:]
    else:
        assert f"{SUBDIR}/{NAMES[1]}" not in seen
