"""Escaped names use Avro's alphabet, never collide and lose nothing."""

import re

from hypothesis import example, given
from hypothesis import strategies as st

from millrace.schemas.record.names import escape_name

ESCAPED = re.compile(r"_u([0-9a-f]{4,6})_")

names = st.one_of(
    st.text(min_size=1),
    st.text(alphabet="_u0aF1 \u00e9", min_size=1),  # looks like an escape
)


@given(names)
@example("_u002d_")
@example("_u_u002d_")
@example("_u0041 x")
@example("__u0041")
@example("9")
@example("_u10ffff_")
@example("\n")
def test_escaped_name_round_trips(name: str) -> None:
    """The escape is a valid Avro name, and it decodes to the original."""
    escaped = escape_name(name)
    assert re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", escaped)
    assert ESCAPED.sub(lambda found: chr(int(found[1], 16)), escaped) == name


@given(st.from_regex(r"[A-Za-tv-z][A-Za-z0-9]*(_[a-t][a-z0-9]*)*", fullmatch=True))
def test_ordinary_names_are_not_escaped(name: str) -> None:
    """An ordinary schema shows no escapes."""
    assert escape_name(name) == name
