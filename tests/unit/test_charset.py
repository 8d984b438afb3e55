"""Bytes become text only if the text gives the same bytes back. Integration tests compare the tables with servers."""

import pytest

from millrace.errors import Fatal
from millrace.schemas.table.charset import decode_text, gb18030_character
from millrace.schemas.table.collation_ids import CHARSETS, character_bytes_max, charset_of


@pytest.mark.parametrize(
    ("charset", "value", "text"),
    [
        ("utf8mb4", "né😀".encode(), "né😀"),
        ("utf8mb4", b"\xff", None),
        ("utf8mb4", b"\xed\xa0\x80", None),  # a surrogate
        ("utf8mb4", b"\xc0\x80", None),  # overlong
        ("utf8mb3", "é".encode(), "é"),
        ("utf8mb3", "😀".encode(), None),
        ("ascii", b"a\x80", None),
        (
            "latin1",
            b"\x80\x81\xe9",
            "€\x81é",
        ),  # the server's latin1 is cp1252 with its gaps filled
        ("ucs2", b"\x00a", "a"),
        ("ucs2", b"\xd8\x3d\xde\x00", None),
        ("ucs2", b"\x00", None),
        ("utf16", b"\xd8\x3d\xde\x00", "😀"),
        ("utf16", b"\xd8\x3d", None),
        ("utf16le", b"a\x00", "a"),
        ("utf32", b"\x00\x01\xf6\x00", "😀"),
        ("utf32", b"\x00\x11\x00\x00", None),
        ("gbk", "中文a".encode("gbk"), "中文a"),
        ("gbk", b"\x81", None),
        ("sjis", b"a\\", None),  # the server turns a backslash into 81 5F
        ("sjis", b"\x81\x5f", "\\"),
        ("cp932", b"\xfa\x40", "ⅰ"),  # of the two codes, the one that the server writes
        ("cp932", b"\xee\xef", None),
        ("ujis", b"\x8f\xb0\xa1\x8e\xb1", "丂ｱ"),
        ("gb18030", b"\x81\x30\x81\x30\x94\x39\xda\x33", "\x80💩"),
        ("gb18030", b"\xa8\xbc\x81\x35\xf4\x37", "\u1e3f\ue7c7"),
        ("gb18030", b"\x81\x30\x81", None),
        ("koi8u", b"\x95", "•"),
        ("swe7", b"@[", "ÉÄ"),
        ("binary", "é".encode(), "é"),
        ("binary", b"\xe9", None),
        ("latin1", b"", ""),
    ],
)
def test_bytes_become_the_servers_text_or_stay_bytes(
    charset: str, value: bytes, text: str | None
) -> None:
    """None means that the record carries the bytes."""
    assert decode_text(charset, value) == text


def test_every_server_character_set_can_be_decoded() -> None:
    """Every collation leads to a known character set."""
    for charset in CHARSETS:
        text = decode_text(charset, b"")
        assert text == ""
        assert 1 <= character_bytes_max(charset) <= 4


def test_unknown_collations_and_charsets_are_refused() -> None:
    """Nothing is converted by guessing."""
    for ask in (
        lambda: charset_of(0),
        lambda: charset_of(5000),
        lambda: decode_text("klingon", b"a"),
        lambda: character_bytes_max("klingon"),
    ):
        with pytest.raises(Fatal, match="MR-6006"):
            ask()


def test_moved_gb18030_character_has_one_code() -> None:
    """A8BC and 81 35 F4 37 changed places between editions; the servers follow the later one."""
    assert gb18030_character(b"\x81\x35\xf4\x37") == "\ue7c7"
    assert decode_text("gb18030", b"\xa8\xbc") == "\u1e3f"
