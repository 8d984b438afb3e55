"""A survey finds every kind of damage, names its exact place and the exact transactions, and changes nothing."""

from pathlib import Path

import pytest

from millrace.producer.relay.damage import Damage
from millrace.producer.relay.layout import Meta, write_meta
from millrace.producer.relay.survey import Survey
from tests.kit.binlog.plain_files import SERVER
from tests.kit.relay.compress import compress
from tests.kit.relay.damaged import NAMES, PER_FILE, flip, lay_log, open_log

FLAVOURS = pytest.mark.parametrize("mariadb", [False, True], ids=["mysql", "mariadb"])


def folder_of(root: Path, *, mariadb: bool = False) -> Path:
    """The one sub-directory."""
    return root / ("0-1.000001" if mariadb else "server-a.000001")


def interval(first: int, last: int, *, mariadb: bool) -> str:
    """The text of an interval of GTIDs."""
    if not mariadb:
        return f"{SERVER}:{first}-{last}" if first != last else f"{SERVER}:{first}"
    return f"({f'0-1-{first - 1}' if first > 1 else '0-*-0'} to 0-1-{last}]"


def only_damage(root: Path) -> Damage:
    """The one damage of the log."""
    (damage,) = Survey(root).verify().damages
    return damage


@FLAVOURS
def test_whole_log_has_no_problem(tmp_path: Path, mariadb: bool) -> None:
    """Also beside a running writer, and compressed; first and last GTIDs of each file are listed."""
    lay_log(tmp_path, mariadb=mariadb)
    relay = open_log(tmp_path, mariadb=mariadb)
    for _ in range(2):
        survey = Survey(tmp_path)
        verdict = survey.verify()
        assert (verdict.damages, verdict.problems, verdict.notes) == ((), (), ())
        assert verdict.position == str(relay.position())
        listed = survey.list_files()
        assert [file.at.file for file in listed] == NAMES
        assert [file.is_active for file in listed] == [False, False, False, True]
        numbers = [1 + PER_FILE * index for index in range(4)]
        prefix = "0-1-" if mariadb else f"{SERVER}:"
        assert [survey.first_gtid(file) for file in listed] == [f"{prefix}{n}" for n in numbers]
        compress(relay)
    relay.close()


@FLAVOURS
def test_flipped_bit_is_named_with_its_transactions(tmp_path: Path, mariadb: bool) -> None:
    """The transactions before it are whole; that of the event and all later ones of the file are affected."""
    files = lay_log(tmp_path, mariadb=mariadb)
    name, file = NAMES[1], files[NAMES[1]]
    place = file.ends[2]  # the third source transaction begins here
    flip(folder_of(tmp_path, mariadb=mariadb) / name, place + 30)
    damage = only_damage(tmp_path)
    assert (damage.at.file, damage.at.pos, damage.why) == (name, place, "a wrong checksum")
    assert str(damage.lost) == interval(7, 8, mariadb=mariadb)


@FLAVOURS
def test_missing_end_between_two_events_is_found(tmp_path: Path, mariadb: bool) -> None:
    """Such a file looks whole; the head of the next one presumes more."""
    files = lay_log(tmp_path, mariadb=mariadb)
    place = files[NAMES[0]].ends[3]
    path = folder_of(tmp_path, mariadb=mariadb) / NAMES[0]
    path.write_bytes(path.read_bytes()[:place])
    damage = only_damage(tmp_path)
    assert (damage.at.pos, damage.why) == (place, "a missing end")
    assert str(damage.lost) == interval(4, 4, mariadb=mariadb)


def test_damaged_head_loses_the_whole_file(tmp_path: Path) -> None:
    """The position before the file is known from the end of the one before."""
    lay_log(tmp_path)
    flip(folder_of(tmp_path) / NAMES[1], 30)
    verdict = Survey(tmp_path).verify()
    damages = {damage.at.file: damage for damage in verdict.damages}
    assert str(damages[NAMES[1]].lost) == interval(5, 8, mariadb=False)
    assert damages[NAMES[1]].at.pos == 0


def test_damaged_frame_is_named_by_the_event_that_it_holds(tmp_path: Path) -> None:
    """In a compressed file too, the place is that in the server's file."""
    lay_log(tmp_path)
    relay = open_log(tmp_path)
    compress(relay)
    relay.close()
    flip(folder_of(tmp_path) / f"{NAMES[1]}.zst", 60)
    damage = only_damage(tmp_path)
    assert damage.at.file == NAMES[1]
    assert str(damage.lost) == interval(5, 8, mariadb=False)


def test_torn_tail_is_damage_only_below_the_durable_end(tmp_path: Path) -> None:
    """A worker may be writing there; what relay.meta names as durable must be readable."""
    files = lay_log(tmp_path)
    path = folder_of(tmp_path) / NAMES[3]
    whole = path.read_bytes()
    path.write_bytes(whole + whole[-50:-20])
    verdict = Survey(tmp_path).verify()
    assert verdict.damages == ()
    assert verdict.notes == (
        f"server-a.000001/{NAMES[3]} ends inside an event; whole up to {len(whole)}",
    )
    path.write_bytes(whole[:-10])
    damage = only_damage(tmp_path)
    assert damage.at.file == NAMES[3]
    assert str(damage.lost) == interval(16, 16, mariadb=False)
    assert files


def test_gap_and_wrong_meta_are_problems(tmp_path: Path) -> None:
    """A missing file, one that was set aside, and a relay.meta that names more than there is."""
    lay_log(tmp_path)
    folder = folder_of(tmp_path)
    (folder / NAMES[1]).rename(folder / f"{NAMES[1]}.damaged")
    write_meta(folder, Meta(NAMES[3], 4, f"{SERVER}:1-17"), is_durable=False)
    problems = "\n".join(Survey(tmp_path).verify().problems)
    assert f"{NAMES[0]}: 1 file is missing after it" in problems
    assert f"{NAMES[1]}.damaged: was set aside as damaged" in problems
    assert f"relay.meta names what {NAMES[3]} does not have: {SERVER}:17" in problems


def test_needs_of_tasks_are_shown_by_file(tmp_path: Path) -> None:
    """A task resumes with the newest file that begins at or before its position."""
    lay_log(tmp_path)
    survey = Survey(tmp_path)
    positions = {"a": f"{SERVER}:1-5", "b": f"{SERVER}:1-16", "c": f"{SERVER}:1-4"}
    needed = survey.needed_by(survey.list_files(), positions)
    folder = "server-a.000001"
    assert needed == {
        "a": f"{folder}/{NAMES[1]}",
        "b": f"{folder}/{NAMES[3]}",
        "c": f"{folder}/{NAMES[1]}",
    }


def test_directory_of_a_former_owner_is_not_needed(tmp_path: Path) -> None:
    """A task that was moved has published what this directory never got."""
    lay_log(tmp_path)
    survey = Survey(tmp_path)
    assert survey.needed_by(survey.list_files(), {"moved": f"{SERVER}:1-17"}) == {}
