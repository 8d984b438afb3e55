"""The end of row records read backwards: what orders a stream is read without any schema."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millrace.errors import Fatal
from schemas.record.avro_codec import Plain, encode
from schemas.record.row_end import RowEnd, read_content, read_row_end

_SCHEMA = """{"type":"record","name":"Suffix","fields":[
{"name":"flags","type":"int"},{"name":"seq","type":"long"},{"name":"op","type":"string"},{"name":"ts_ms","type":"long"},
{"name":"transaction","type":{"type":"record","name":"T","fields":[
{"name":"id","type":"string"},{"name":"total_order","type":"long"},{"name":"last","type":"boolean"}]}}]}"""

NUMBERS = st.integers(0, 2**63 - 1)
MARIADB = st.builds(
    "{}-{}-{}".format, st.integers(0, 2**32 - 1), st.integers(0, 2**32 - 1), NUMBERS
)
TAG = st.from_regex(r"[a-z_][a-z0-9_]{0,31}", fullmatch=True)
MYSQL = st.one_of(
    st.builds("{}:{}".format, st.uuids(), NUMBERS),
    st.builds("{}:{}:{}".format, st.uuids(), TAG, NUMBERS),
)


@given(
    st.binary(max_size=40),
    st.integers(-(2**31), 2**31 - 1),
    st.builds(
        RowEnd,
        NUMBERS,
        st.sampled_from("cud"),
        NUMBERS,
        st.one_of(MYSQL, MARIADB),
        NUMBERS,
        st.booleans(),
    ),
)
def test_any_suffix_is_decoded_after_any_bytes(images: bytes, flags: int, suffix: RowEnd) -> None:
    """Avro's own encoder writes it; the images before it are any bytes."""
    fields = {
        "flags": flags,
        "seq": suffix.seq,
        "op": suffix.op,
        "ts_ms": suffix.ts_ms,
        "transaction": {
            "id": suffix.gtid,
            "total_order": suffix.total_order,
            "last": suffix.last,
        },
    }
    assert read_row_end(b"\0\0\0\0\1" + images + encode(_SCHEMA, fields)) == suffix


_LOGGED = """{"type":"record","name":"Logged","fields":[{"name":"set","type":"string"},
{"name":"source_ms","type":"long"},{"name":"server_id","type":"long"},{"name":"gtid","type":"string"},
{"name":"file","type":"string"},{"name":"pos","type":"long"},{"name":"row","type":"int"},
{"name":"event_flags","type":"int"},{"name":"seq","type":"long"},{"name":"op","type":"string"},
{"name":"ts_ms","type":"long"},{"name":"id","type":"string"},{"name":"total_order","type":"long"},
{"name":"last","type":"boolean"}]}"""
_SMALL = st.integers(0, 2**31 - 1)
_PLACES = st.fixed_dictionaries(
    {
        "source_ms": NUMBERS,
        "server_id": NUMBERS,
        "file": st.from_regex(r"[\x20-\x7e]{1,80}\.[0-9]{6,7}", fullmatch=True),
        "pos": NUMBERS,
        "row": _SMALL,
        "event_flags": _SMALL,
        "ts_ms": NUMBERS,
        "last": st.booleans(),
    }
)


@given(st.binary(max_size=40), st.one_of(MYSQL, MARIADB), _PLACES, _PLACES, NUMBERS)
def test_row_content_is_equal_wherever_it_was_logged(
    images: bytes, gtid: str, ours: dict[str, Plain], theirs: dict[str, Plain], seq: int
) -> None:
    """Places, times and schema ids of two servers differ in any way; one other byte of the images is seen."""
    fixed: dict[str, Plain] = {"set": "shop", "gtid": gtid, "id": gtid}
    fixed |= {"seq": seq, "op": "u", "total_order": 3}
    known = b"\0\0\0\0\1\0" + images + encode(_LOGGED, ours | fixed)
    fresh = b"\0\0\0\0\2\0" + images + encode(_LOGGED, theirs | fixed)
    content = read_content(known, read_row_end(known))
    assert content == b"\0" + images + b"\x08shop"
    assert content == read_content(fresh, read_row_end(fresh))


@given(st.binary(max_size=60))
def test_invalid_suffix_is_refused_with_a_code(value: bytes) -> None:
    """No crash and no hang on anything: MR-6007 (no such bytes end in a whole suffix)."""
    with pytest.raises(Fatal) as refused:
        read_row_end(value)
    assert refused.value.code == "MR-6007"


def test_truncated_record_suffix_is_refused() -> None:
    """A suffix too short to hold all fields is refused."""
    with pytest.raises(Fatal):
        read_row_end(b"\0\0\0\0\1\x06\x02c")
