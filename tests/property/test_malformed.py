"""Any value in place of a valid one is read or refused with a code; no other error is raised."""

import json
import re
import time
from collections.abc import Callable, Mapping
from copy import deepcopy
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from millrace.consumer.records.row_schemas import RowSchemas, make_programs
from millrace.errors import Fatal, MillraceError
from millrace.producer.relay import layout
from millrace.schemas.documents import plain_from_yaml
from millrace.schemas.gtid import Flavour, parse_gtid, parse_gtid_set
from millrace.schemas.gtid.binary import decode_gtid_list, decode_previous_gtids
from millrace.schemas.place import Coordinates
from millrace.schemas.record.avro_codec import check_schema, decode
from millrace.schemas.record.avro_schema import AvroSchema, envelope_schema
from millrace.schemas.record.row_layout import parse_row_layout
from millrace.schemas.sql.statement import classify
from millrace.schemas.status import TaskReport, TaskState, report_from_json, report_to_plain
from millrace.zk.client.session import Node
from millrace.zk.tree.entries import (
    Desired,
    SetEntry,
    TaskEntry,
    set_content,
    set_entry,
    task_content,
    task_entry,
)
from millrace.zk.tree.paths import decode as decode_node
from millrace.zk.tree.reports import saved_report_of
from tests.kit.control.control import a_capture, a_set
from tests.kit.fuzz.record import EVERYTHING

ODD = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 300),
    st.sampled_from([2**31, 2**63, -(2**63) - 1, 10**400, float("inf"), float("nan"), 1.5]),
    st.sampled_from(["", "null", "\ud800", "\0", "`", "a" * 70_000, "Row", "bytes", "2001-01-01"]),
    st.sampled_from([[], {}, [[]], ["null"], [None], {"type": "bytes"}, {"": 0}]),
)


def nested(depth: int) -> bytes:
    """Return an array of arrays of arrays."""
    return b"[" * depth + b"]" * depth


@st.composite
def spoilt(draw: st.DrawFn, good: object) -> object:
    """Return ``good`` with one to three of its parts replaced, removed or renamed."""
    plain = json.loads(json.dumps(good))
    for _ in range(draw(st.integers(1, 3))):
        holder = plain
        while isinstance(holder, dict | list) and holder:
            keys = list(holder) if isinstance(holder, dict) else list(range(len(holder)))
            key = draw(st.sampled_from(keys))
            inner = holder[key]
            if isinstance(inner, dict | list) and inner and draw(st.booleans()):
                holder = inner
                continue
            match draw(st.integers(0, 2)):
                case 0:
                    holder[key] = deepcopy(draw(ODD))
                case 1:
                    del holder[key]
                case _ if isinstance(holder, dict):
                    holder[draw(st.sampled_from(["x", "", "type", "fields"]))] = holder.pop(key)
            break
    return plain


def refused(read: Callable[[], object], *codes: str) -> bool:
    """Return True if the call was refused with one of these codes, False if it succeeded."""
    try:
        read()
    except MillraceError as error:
        if error.code not in codes:
            raise
        return True
    return False


ENVELOPE = json.loads(envelope_schema("shop", EVERYTHING).text)
REPORT = report_to_plain(TaskReport(TaskState.RUNNING, warnings=("the topic has one replica",))) | {
    "revision": 5
}
SET_NODE = json.loads(set_content(a_set()))
TASK_NODE = json.loads(task_content(Desired(a_capture())))


@given(spoilt(ENVELOPE), st.binary(max_size=40))
@example({"fields": [{"name": "before", "type": ["null", {"fields": [{"type": []}]}]}]}, b"")
@example([], b"\2")
@example({**ENVELOPE, "name": "null", "namespace": None}, b"\2")
def test_damaged_record_schema_is_read_or_refused(plain: object, body: bytes) -> None:
    """The schema comes from the registry or the topic; layout, programs, Avro type and decoding are checked."""
    text = json.dumps(plain)
    refused(lambda: AvroSchema.parse(text), "MR-6010")
    is_layout = not refused(lambda: parse_row_layout(text), "MR-6010")
    if is_layout:
        make_programs(RowSchemas({7: text}))
    if not refused(lambda: check_schema(text), "MR-6010"):
        # a schema that Avro allows may still be impossible for a row: one that contains itself
        refused(lambda: decode(text, body), "MR-6007", "MR-6010")


def test_endlessly_nested_schema_is_refused() -> None:
    """The operator never sees Python's recursion limit."""
    for depth in (100, 500, 990, 5_000, 200_000):
        for text in (
            nested(depth).decode(),
            '{"type":"array","items":' * depth + '"int"' + "}" * depth,
        ):
            for read in (AvroSchema.parse, parse_row_layout, lambda text: decode(text, b"\0")):
                assert refused(lambda read=read, text=text: read(text), "MR-6010")  # type: ignore[misc]
            refused(lambda text=text: check_schema(text), "MR-6010")  # type: ignore[misc]


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "record", "name": "R", "fields": [{"name": "n", "type": ["null", "R"]}]},
        {
            "type": "record",
            "name": "R",
            "fields": [{"name": "n", "type": {"type": "map", "values": "R"}}],
        },
        {"type": "array", "items": "null"},
        {"type": "array", "items": {"type": "record", "name": "E", "fields": []}},
    ],
    ids=["in itself", "in a map of itself", "nothing", "empty records"],
)
def test_schema_of_unbounded_expansion_is_refused(schema: object) -> None:
    """A million levels crashed the process (SIGSEGV in the Avro library); 2**60 empty items would fill the memory."""
    for body in (b"\2" * 1_000_000 + b"\0", b"\xfe" + b"\xff" * 8 + b"\x01"):
        assert refused(lambda body=body: decode(json.dumps(schema), body), "MR-6010")  # type: ignore[misc]


def node(content: bytes) -> Node:
    """Return a node with this content."""
    return Node(content, version=1, czxid=2, mzxid=3, ephemeral_owner=0, modified_ms=4)


def _read_nodes(content: bytes) -> Mapping[str, object]:
    """Call every function that reads a node of the tree."""
    refused(lambda: report_from_json(content, origin="status/x"), "MR-4011")
    refused(lambda: decode_node(content, "workers/x"), "MR-4011")
    return {
        "standing": saved_report_of(node(content), "x"),
        "task": task_entry(node(content), name="shop-capture"),
        "set": set_entry(node(content), name="shop"),
    }


@given(st.one_of(spoilt(REPORT), spoilt(SET_NODE), spoilt(TASK_NODE)))
@example(REPORT | {"seq": float("inf")})
@example(REPORT | {"next_try_s": 10**400})
def test_damaged_node_is_read_or_refused(plain: object) -> None:
    """Every reader of reports, sets and tasks raises MR-4011 or a document's own code."""
    _read_nodes(json.dumps(plain).encode())


@given(
    st.one_of(
        st.binary(max_size=60),
        st.sampled_from([REPORT, SET_NODE, TASK_NODE]).flatmap(
            lambda good: st.integers(0, len(json.dumps(good))).map(
                lambda cut: json.dumps(good).encode()[:cut]
            )
        ),
    )
)
@example(nested(500))
@example(nested(990))
@example(nested(100_000))
@example(b'{"format":1,"document":' + nested(900) + b"}")
@example(b'{"format":' + b"9" * 5000 + b"}")
def test_half_written_node_is_refused(content: bytes) -> None:
    """A node cut anywhere, or one without JSON, is refused as a whole."""
    found = _read_nodes(content)
    if not content.endswith(b"}"):
        assert not isinstance(found["task"], TaskEntry)
        assert not isinstance(found["set"], SetEntry)
        assert found["standing"] is None


HOSTILE_YAML = (  # each with the reason of its refusal
    ('a: "\\ud800"\n', "UnicodeEncodeError"),
    ("a: &a [x]\nb: *a\n", "an alias (*name) is not allowed"),
    ("a: !!python/object/apply:os.system ['true']\n", "a tag (!name) is not allowed"),
    ("a: 1\na: 2\n", "a key is given twice"),
    ("? [x]\n: y\n", "a key is not text"),
    ("a: \x07\n", "special characters are not allowed"),
    ("--- 1\n--- 2\n", "more than one document"),
    ("%YAML 9.9\n---\na: 1\n", "incompatible YAML document"),
    ("[" * 250_000, "nested deeper than"),
    ("{a: " * 60_000, "nested deeper than"),
    ("- " * 120_000, "nested deeper than"),
    ("a: b" + "\n" * 250_000 + "c", "could not find expected ':'"),
    ("x" * 300_000, "larger than"),
)
ODD_YAML = {  # each with its meaning
    "no merge": ("<<: {a: 1}\n", {"<<": {"a": 1}}),
    "a mark of order": ("\ufeffa: 1\n", {"a": 1}),
}
# each by its length, with its meaning
LONG_YAML: dict[str, Callable[[int], tuple[str, object]]] = {
    "digits": lambda count: ("a: " + "9" * 10 * count, {"a": "9" * 10 * count}),
    "lines": lambda count: ("a: |\n" + " x\n" * 3 * count, {"a": "x\n" * 3 * count}),
    "quotes": lambda count: ("'" * 10 * count, "'" * (5 * count - 1)),
    "keys": lambda count: (
        "".join(f"k{n}: 1\n" for n in range(count)),
        {f"k{n}": 1 for n in range(count)},
    ),
}
CPU_S = 5.0  # for pages of text
SHORT, LONG = 1_000, 20_000
GROWTH_MAX = 60.0  # of the time: 20 times the length may take 20 times as long; quadratic growth would take 400 times
LOOKS = 5  # a pause of the machine hits only one of them


@pytest.mark.parametrize(("text", "why"), HOSTILE_YAML, ids=[why for _, why in HOSTILE_YAML])
@pytest.mark.guarantee("robust")
def test_hostile_yaml_is_refused_in_bounded_time(text: str, why: str) -> None:
    """Aliases, tags, repeated keys, several documents, depth and size are refused."""
    begin = time.process_time()
    with pytest.raises(Fatal, match=re.escape(why)) as caught:
        plain_from_yaml(text)
    assert time.process_time() - begin < CPU_S
    assert caught.value.code == "MR-4102"


@pytest.mark.parametrize("name", ODD_YAML)
def test_unusual_yaml_is_read_literally(name: str) -> None:
    """Nothing is merged, and marks are not part of a key."""
    text, plain = ODD_YAML[name]
    assert plain_from_yaml(text) == plain


@pytest.mark.parametrize("name", LONG_YAML)
def test_long_yaml_is_read_in_linear_time(name: str) -> None:
    """Numbers are bounded; texts are long and keys many."""

    def read_s(count: int) -> float:
        text, plain = LONG_YAML[name](count)
        begin = time.process_time()
        found = plain_from_yaml(text)
        took_s = time.process_time() - begin
        assert found == plain
        return took_s

    growths: list[float] = []
    while not growths or (min(growths) > GROWTH_MAX and len(growths) < LOOKS):
        growths.append(read_s(LONG) / read_s(SHORT))
    assert min(growths) < GROWTH_MAX


GTID_TEXT = st.text(alphabet="0123456789abcdef-:,_ \n\u0661A", max_size=80)
NEAR_GTID = st.sampled_from(
    ["3e11fa47-71ca-11e1-9e33-c80aa9429562:1-5:blue:3-4", "0-1-5,1-2-3"]
).flatmap(lambda good: st.tuples(st.just(good), st.integers(0, len(good)), GTID_TEXT))


@given(
    st.one_of(
        GTID_TEXT, st.text(max_size=20), NEAR_GTID.map(lambda t: t[0][: t[1]] + t[2] + t[0][t[1] :])
    )
)
@example("0-1-" + "9" * 5000)
@example("3e11fa47-71ca-11e1-9e33-c80aa9429562:" + "9" * 5000)
@example("3e11fa47-71ca-11e1-9e33-c80aa9429562:1-18446744073709551616")
def test_any_text_is_a_gtid_set_or_refused(text: str) -> None:
    """Both flavours are covered, and so are coordinates and names of relay files."""
    for flavour in Flavour:
        refused(lambda flavour=flavour: parse_gtid_set(flavour, text), "MR-6001", "MR-6002")  # type: ignore[misc]
        refused(lambda flavour=flavour: parse_gtid(flavour, text), "MR-6001")  # type: ignore[misc]
    refused(lambda: Coordinates.parse(text), "MR-6008")
    refused(lambda: layout.file_number(text), "MR-2010")
    layout.parse_subdir(text)


@given(st.binary(max_size=120))
@example(b"\xff" * 8 + bytes(40))
@example((2**62).to_bytes(8, "little") + bytes(40))
@example(b"\x01" + b"\xff" * 7 + bytes(40))
def test_any_bytes_are_previous_gtids_or_refused(body: bytes) -> None:
    """Counts beyond the body are never trusted."""
    for read in (decode_previous_gtids, decode_gtid_list):
        refused(lambda read=read: read(body), "MR-6003", "MR-6001", "MR-6002")  # type: ignore[misc]


@given(
    st.one_of(
        st.binary(max_size=60),
        st.sampled_from(
            [
                b"binlog-name = 5\nbinlog-pos = 'x'\nbinlog-gtid = []\n",
                b"binlog-pos = " + b"9" * 5000,
                b"x = " + nested(3000),
                b'binlog-name = "\\uD800"',
            ]
        ),
    )
)
def test_any_relay_meta_is_a_hint_or_ignored(content: bytes) -> None:
    """An unusable file is ignored: the relay files hold the same facts."""
    with TemporaryDirectory() as folder:
        (Path(folder) / layout.META_NAME).write_bytes(content)
        found = layout.read_meta(Path(folder))
    assert found is None or isinstance(found.binlog_pos, int)


WORDS = [
    "CREATE",
    "ALTER",
    "DROP",
    "RENAME",
    "TRUNCATE",
    "TABLE",
    "DATABASE",
    "INDEX",
    "TEMPORARY",
    "IF",
    "NOT",
    "EXISTS",
    "TO",
    "LIKE",
    "SELECT",
    "AS",
    "PARTITION",
    "EXCHANGE",
    "WITH",
    "REFERENCES",
    "FOREIGN",
    "KEY",
    "ADD",
    "COLUMN",
    "SET",
    "START",
    "TRANSACTION",
    "ON",
    "t",
    "é",
    "1e5",
    "0x",
    "0b1",
    "@v",
    ":=",
    ",",
    ".",
    "(",
    ")",
    ";",
    "`",
    "'",
    '"',
    "\\",
    "/*",
    "*/",
    "/*!50000",
    "/*M!",
    "--",
    "#",
    "\n",
    "\x00",
    "`a``b`",
    "'x'",
]
SQL = st.lists(st.sampled_from(WORDS), max_size=30).map(" ".join)


@given(st.one_of(SQL, st.text(max_size=80)))
def test_any_statement_is_classified(sql: str) -> None:
    """The tokenizer ends on every text, and every statement has a kind and a text to record."""
    found = classify(sql, "d")
    assert isinstance(found.recorded_text(sql), str)


def test_long_statement_is_classified_in_linear_time() -> None:
    """Pages of opening characters without their end are covered."""
    for piece in (
        "(",
        "/*",
        "'",
        "`",
        "a.",
        "/*!5 ",
        "-- \n",
        ", `a`.`b`",
        "'\\'",
        "RENAME TABLE a TO b,",
    ):
        begin = time.process_time()
        classify("ALTER TABLE t ADD " + piece * (20_000 // len(piece)), "d")
        classify(piece * (20_000 // len(piece)), "d")
        assert time.process_time() - begin < CPU_S, piece
