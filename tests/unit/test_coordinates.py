"""Relay coordinates are ordered by number, and invalid ones are refused."""

import pytest

from millrace.errors import Fatal
from millrace.schemas.place import Coordinates


def test_coordinates_are_ordered_by_number_not_by_text() -> None:
    """The file after mysql-bin.999999 comes later, and so does the next sub-directory of any server."""
    ordered = [
        Coordinates("bbb.000001", "mysql-bin.000002", 4),
        Coordinates("bbb.000001", "mysql-bin.000002", 120),
        Coordinates("bbb.000001", "mysql-bin.999999", 4),
        Coordinates("bbb.000001", "mysql-bin.1000000", 4),
        Coordinates("aaa.000002", "binlog.000001", 4),
    ]
    assert sorted(ordered[at] for at in (3, 0, 4, 2, 1)) == ordered


def test_coordinates_round_trip_as_text() -> None:
    """The text is that of the status."""
    place = Coordinates("0-1.000001", "mysql-bin.000002", 4)
    assert Coordinates.parse(str(place)) == place
    assert place.at(99).pos == 99


@pytest.mark.parametrize("text", ["", "a/b", "b.1:4", "a.1/b.2:x", "/b.1:4"])
def test_invalid_coordinates_are_refused(text: str) -> None:
    """The code's fix explains where to take coordinates from."""
    with pytest.raises(Fatal, match="MR-6008"):
        Coordinates.parse(text)


def test_file_name_without_a_number_has_no_order() -> None:
    """A comparison is refused rather than guessed."""
    with pytest.raises(Fatal, match="MR-6008"):
        assert Coordinates("a.1", "b", 4) < Coordinates("a.1", "b.2", 4)
