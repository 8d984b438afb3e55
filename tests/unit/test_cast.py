"""Recordings of a terminal: what a screen shows at the end, and whether it fits a page."""

import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from millrace.deploy.site import hooks
from millrace.deploy.site.cast import HEIGHT, Recording, fits, read, sessions_of

PAGE = """Text.

<!-- recording: one -->
```console
$ millrace status
shop RUNNING lag 0.1 s …
…
last
$ millrace down
```

More.
"""


def written(*texts: str) -> Recording:
    """A recording of a text in each second."""
    return Recording([(float(second), "o", text) for second, text in enumerate(texts)])


def test_screen_shows_the_lines_at_the_end() -> None:
    """Carriage returns, erased lines, a cursor that moves up, tabs and colors."""
    recording = written("one\r\n10 %\r20 %\r\n", "\x1b[1A\x1b[2Kdone\r\nid\tv\r\n")
    assert recording.text() == "one\ndone\nid      v"
    colored = written("\x1b[1;32mbold\x1b[0m & <plain>").picture()
    assert '<tspan class="b" fill="#7ee787">bold</tspan> &amp; &lt;plain&gt;' in colored


@pytest.mark.parametrize("text", ["\x1b[2;2H", "\x1b]0;title\x07"])
def test_unknown_escape_sequences_are_refused(text: str) -> None:
    """A picture never has the half of one as text."""
    with pytest.raises(ValueError, match="is not known"):
        written(text).text()


def test_long_recording_scrolls_to_its_last_lines() -> None:
    """The picture is as high as a terminal, and valid XML."""
    short, long = (written(*(f"{n}\r\n" for n in range(count))) for count in (3, 40))
    assert "translateY" not in short.picture()
    assert f"translateY({-(40 - HEIGHT) * 19}px); }} }}" in long.picture()
    for one in (short, long):
        ET.fromstring(one.picture())


def test_cast_file_is_read_as_it_was_written() -> None:
    """The format asciicast 2: a header, then a line for each output."""
    recording = Recording(
        [(0.5, "m", "ls"), (0.5, "o", "$ ls\r\n"), (1.25, "o", "$ größe\x1b[0m\r\n")]
    )
    assert read(recording.cast()) == recording
    assert recording.commands() == ["ls"]
    assert recording.text() == "$ ls\n$ größe"


def test_output_fits_the_page_except_for_numbers() -> None:
    """``…`` is the rest of a line, or any lines."""
    (session,) = sessions_of(PAGE)
    (_, shown), (_, nothing) = session.steps()
    assert fits(shown, "shop RUNNING  lag 12.5 s | seq 7\nmore\nmore\nlast\n")
    assert fits(shown, "shop RUNNING lag 2 s | seq 7\nlast")
    assert not fits(shown, "shop BLOCKED lag 2 s | seq 7\nlast")
    assert not fits(shown, "shop RUNNING lag 2 s | seq 7\nlast\nbut one")
    assert fits(nothing, "")
    assert not fits(nothing, "stopped")


def test_site_shows_a_recording_of_the_commands_of_the_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A recording of other commands is not shown, and a page without one stays as it is."""
    monkeypatch.setenv("MILLRACE_HOME", str(tmp_path))
    assert hooks.with_recordings(PAGE) == PAGE
    (tmp_path / "site").mkdir()
    cast = tmp_path / "site/one.cast"
    cast.write_text(Recording([(0.0, "m", "millrace status")]).cast())
    assert hooks.with_recordings(PAGE) == PAGE
    cast.write_text(Recording([(0.0, "m", "millrace status"), (1.0, "m", "millrace down")]).cast())
    text = hooks.with_recordings(PAGE)
    assert "(recordings/one.svg)" in text
    assert "$ millrace status\nshop RUNNING" in text
