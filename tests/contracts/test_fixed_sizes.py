"""Every array of a fixed size in the product is known: what counts into it, and where its border is tried.

An array whose size is a constant overflows when a count from the wire is not compared with it. A new one fails here
until it has a border in ``tests.kit.fuzz.structure``, or a reason why no count of the input reaches it.
"""

import ast
from collections.abc import Iterator

from tests.kit.fuzz.structure import BORDERS
from tests.kit.paths import ROOT

PRODUCT = ("millrace", "schemas", "drivers", "registry", "zk", "producer", "consumer")
_MAKERS = {"zeros", "empty", "full", "ones"}

GROWS = "it grows, or is read again, when it is full"
BY_BYTE = "the index is one byte"
OWN = "its slots are named in the code; no count reaches it"
EMPTY = "it is replaced before use"
SCRATCH = "16 bytes that the checksum folds into, or one head of a packet"
BUFFER = "a kernel gets its size, and stops when it is full: tests.kit.fuzz.relay, test_serve_dump"
WARM = "made for the constant input of a warm-up"

# file and name of the array: the border that tries it, or a reason
FIXED = {
    "consumer/publish/conversion.py return": "no records: nothing is written into it",
    "drivers/kafka/headers.py arguments": WARM,
    "drivers/kafka/headers.py nothing": WARM,
    "drivers/kafka/headers.py digits": WARM,
    "consumer/publish/warm_up.py ints": "one invented record, so that a kernel is compiled",
    "producer/convert/arrays.py key_spans": "key_columns",
    "producer/snapshot/inserts.py _spans": "key_columns",
    "producer/convert/arrays.py numbers": "values",
    "producer/convert/arrays.py expected": "gtids",
    "producer/convert/arrays.py sids": "gtids",
    "producer/convert/arrays.py intervals": "gtids",
    "producer/convert/arrays.py heads": "names",
    "producer/convert/arrays.py ids": "tables",
    "producer/convert/arrays.py tables": "tables",
    "producer/convert/arrays.py columns": "columns",
    "producer/convert/arrays.py labels": "labels",
    "producer/convert/arrays.py blob": "labels",
    "producer/convert/output.py bounds": "tables",
    "producer/binlog/gtid_runs.py return": "events",
    "producer/convert/event_sources.py rows": "events",
    "producer/convert/xa.py rows": "events",
    "producer/convert/kernel/inflate.py offsets": "deflated",
    "producer/convert/kernel/inflate.py read": "deflated",
    "producer/convert/kernel/inflate.py reader": OWN,
    "producer/convert/kernel/inflate.py lengths": "deflated",
    "producer/convert/kernel/inflate.py literal_counts": "deflated",
    "producer/convert/kernel/inflate.py distance_counts": "deflated",
    "consumer/kernel/json_text.py table": BY_BYTE,
    "consumer/kernel/flat_records.py event": OWN,
    "consumer/kernel/flat_records.py places": OWN,
    "consumer/kernel/flat_records.py source": OWN,
    "consumer/kernel/flat_records.py work": "records",
    "consumer/format/flat_format.py settings": OWN,
    "consumer/kernel/json_records.py last": OWN,
    "consumer/kernel/json_records.py places": OWN,
    "consumer/kernel/json_records.py work": "records",
    "consumer/kernel/avro_records.py places": OWN,
    "consumer/kernel/avro_records.py work": "records",
    "consumer/format/avro_format.py places": OWN,
    "consumer/format/avro_format.py settings": OWN,
    "consumer/format/cloud_events.py types": OWN,
    "consumer/format/cloud_events.py _NO_CHANGES": EMPTY,
    "consumer/format/transactions.py state": OWN,
    "consumer/format/transactions.py return": EMPTY,
    "consumer/kernel/digits.py return": "records",
    "consumer/format/json_format.py places": OWN,
    "consumer/format/json_format.py settings": OWN,
    "producer/convert/arrays.py scratch": GROWS,
    "producer/convert/arrays.py inflated": GROWS,
    "producer/snapshot/encoder.py _out": GROWS,
    "producer/serve/dump.py _window": BUFFER,
    "producer/serve/dump.py window": BUFFER,
    "producer/serve/dump.py _out": BUFFER,
    "producer/source/receive/dump_stream.py _wire": BUFFER,
    "producer/source/receive/dump_stream.py _out": BUFFER,
    "consumer/copy/form.py table": BY_BYTE,
    "producer/binlog/crc.py tables": BY_BYTE,
    "producer/binlog/transactions.py table": BY_BYTE,
    "producer/convert/charset_tables.py single": BY_BYTE,
    "producer/convert/kernel/walk.py table": BY_BYTE,
    "producer/convert/kernel/json_binary.py _ESCAPE": "the index is a control character, below 32",
    "drivers/mysql/collation.py codes": "a place for each code point",
    "drivers/mysql/collation.py found": "a place for each letter of a page",
    "producer/convert/arrays.py state": OWN,
    "producer/binlog/gtid_runs.py words": OWN,
    "producer/convert/tables.py row": OWN,
    "producer/snapshot/encoder.py row": OWN,
    "producer/snapshot/images.py state": OWN,
    "producer/relay/recovery.py state": OWN,
    "producer/serve/dump.py _state": OWN,
    "producer/serve/dump.py state": OWN,
    "producer/serve/walked.py _state": OWN,
    "producer/source/receive/dump_stream.py _state": OWN,
    "consumer/kernel/text_rows.py state": OWN,
    "consumer/kernel/sha256.py state": "messages are counted up to its lanes: test_view_masks",
    "consumer/kernel/sha256.py work": "messages are counted up to its lanes: test_view_masks",
    "consumer/kernel/sha256.py states": OWN,
    "consumer/view/masks.py work": "records",
    "consumer/records/row_schemas.py programs": "the program of no schema",
    "millrace/text_protocol/arriving.py head": SCRATCH,
    "producer/relay/large_event.py folded": SCRATCH,
    "producer/relay/reader.py _folded": SCRATCH,
    "producer/relay/recovery.py runs": SCRATCH,
    "producer/serve/dump.py _folded": SCRATCH,
    "producer/serve/walked.py runs": SCRATCH,
    "producer/source/receive/dump_stream.py _folded": SCRATCH,
    "producer/task/warm_up.py spans": WARM,
    "producer/task/warm_up.py out": WARM,
    "consumer/turn/warm_up.py held": WARM,
    "consumer/turn/warm_up.py out": WARM,
    "consumer/turn/applier.py NO_LANES": EMPTY,
    "consumer/records/numbers.py NO_SEQS": EMPTY,
    "millrace/text_protocol/arriving.py row": EMPTY,
    "producer/convert/charset_tables.py codes": EMPTY,
    "producer/convert/dump.py name": EMPTY,
    "producer/convert/event_sources.py _NO_EVENTS": EMPTY,
    "producer/convert/event_sources.py window": EMPTY,
    "producer/convert/output.py out": EMPTY,
    "producer/relay/large_event.py _piece": EMPTY,
    "producer/serve/dump.py return": EMPTY,
    "producer/serve/dump.py nothing": EMPTY,
    "consumer/view/rows.py return": EMPTY,
}


def test_every_fixed_array_has_a_border_or_reason() -> None:
    """And no entry is left of an array that is gone."""
    assert set(_fixed_arrays()) == FIXED.keys()
    reasons = {reason for reason in FIXED.values() if " " in reason}
    assert set(FIXED.values()) - reasons <= BORDERS.keys()


def test_a_fixed_array_is_seen_in_every_form() -> None:
    """The scan itself can fail."""
    seen = _names_in(
        "import numpy as np\na = np.zeros(2 * p.KEY_MAX, np.int64)\nself._b: X = np.full((64, w.WIDTH), 0)\n"
        "c, d = np.empty(SIZE), 1\ne = np.zeros(count)\ndef f():\n    return np.empty(1 << 16, np.uint8)\n"
    )
    assert list(seen) == ["a", "_b", "c", "return"]


def _fixed_arrays() -> Iterator[str]:
    for folder in PRODUCT:
        for path in sorted((ROOT / folder).rglob("*.py")):
            for name in _names_in(path.read_text()):
                yield f"{path.relative_to(ROOT)} {name}"


def _names_in(source: str) -> Iterator[str]:
    """The names that arrays of a fixed size are given, in the order of the text."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Assign | ast.AnnAssign | ast.Return) and node.value is not None:
            targets = (
                node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
            )
            if any(_makes_fixed(call) for call in ast.walk(node.value)):
                yield _name_of(targets[0])


def _makes_fixed(node: ast.AST) -> bool:
    return (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in _MAKERS
        and bool(node.args)
        and _is_constant(node.args[0])
    )


def _is_constant(size: ast.expr) -> bool:
    match size:
        case ast.Constant():
            return True
        case ast.Name(name) | ast.Attribute(attr=name):
            return name.strip("_").replace("_", "").isupper()
        case ast.BinOp(left, _, right):
            return _is_constant(left) and _is_constant(right)
        case ast.Tuple(parts):
            return all(map(_is_constant, parts))
    return False


def _name_of(target: ast.AST | None) -> str:
    match target:
        case ast.Name(name) | ast.Attribute(attr=name):
            return name
        case ast.Tuple([first, *_]):
            return _name_of(first)
    return "return"
