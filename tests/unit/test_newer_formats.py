"""The table of docs/upgrade.md: what this program does with what a newer one wrote."""

import json
from collections.abc import Callable

import pytest

from millrace.client import Place, RecordStream
from millrace.consumer.publish.mark import Mark
from millrace.errors import Fatal
from millrace.schemas.documents import parse_set, parse_task
from millrace.schemas.record.avro_schema import envelope_schema
from millrace.schemas.record.framing import frame
from millrace.schemas.record.row_layout import parse_row_layout
from millrace.schemas.status import TaskReport, TaskState, report_from_json, report_to_plain
from millrace.schemas.table.structure import Column, ColumnType, TableSchema, TypeCode
from millrace.zk.client.session import Node
from millrace.zk.lease.membership import registered
from millrace.zk.tree.paths import decode, encode
from millrace.zk.tree.reports import saved_report_of

TASK: dict[str, object] = {
    "task": "shop-capture",
    "kind": "capture",
    "set": "shop",
    "topic": "shop",
    "kafka": {"bootstrap": "k:1"},
    "registry": "http://r:1",
    "start": "first",
}
SET: dict[str, object] = {
    "set": "shop",
    "members": [{"host": "db1", "port": 3306}],
    "user": "millrace",
    "password": "env:SHOP",
}
ORDERS = TableSchema(
    "shop", "orders", (Column("id", ColumnType(TypeCode.LONG), False),), (0,), (0,)
)
ENVELOPE = envelope_schema("shop", ORDERS).text
NEWER_TYPE = ENVELOPE.replace(f'"millrace.code":{TypeCode.LONG.value}', '"millrace.code":99')
NEWER_RECORD = frame(1, b"\x08news")  # a control record of a kind with four letters


def _status(**fields: object) -> bytes:
    plain = report_to_plain(TaskReport(TaskState.RUNNING, seq=7))
    return json.dumps({**plain, "revision": 1, **fields}).encode()


@pytest.mark.parametrize(
    ("code", "read"),
    [
        ("MR-4107", lambda: parse_task({**TASK, "format": 2})),
        ("MR-4107", lambda: parse_set({**SET, "format": 2})),
        ("MR-4101", lambda: parse_task({**TASK, "novelty": 1})),
        ("MR-4101", lambda: parse_set({**SET, "novelty": 1})),
        ("MR-4011", lambda: decode(b'{"format":2}', "tasks/t")),
        ("MR-4011", lambda: report_from_json(_status(format=3), origin="status/t")),
        ("MR-3503", lambda: RecordStream(Place(0)).take(0, None, NEWER_RECORD)),
        ("MR-6010", lambda: parse_row_layout(NEWER_TYPE)),
        ("MR-3101", lambda: Mark.of([(b"novelty", b"{}")])),
        ("MR-3101", lambda: Mark.of([(b"partition/t/0", b'{"topic_id":"","end":1,"novelty":1}')])),
    ],
)
def test_newer_format_is_refused_with_its_code(code: str, read: Callable[[], object]) -> None:
    """Nothing is guessed: the code's fix says to upgrade, or which record is in the way."""
    with pytest.raises(Fatal) as caught:
        read()
    assert caught.value.code == code


def test_schema_of_this_version_is_read() -> None:
    """So the case of a newer type differs from it in one number."""
    assert parse_row_layout(ENVELOPE).table == ORDERS
    assert NEWER_TYPE != ENVELOPE


def test_unknown_fields_of_nodes_are_ignored() -> None:
    """A newer process adds fields to registrations, to other small nodes and to reports."""
    assert decode(encode({"worker": "w1", "novelty": 1}), "owners/t")["worker"] == "w1"
    assert registered({"w1": _node(encode({"kind": "capture", "novelty": 1}))}).keys() == {"w1"}
    saved = saved_report_of(_node(_status(novelty=1)), "t")
    assert saved is not None
    assert saved.report.seq == 7


def test_status_of_a_newer_format_is_as_unknown() -> None:
    """The task's next report replaces it. No decision depends on it."""
    assert saved_report_of(_node(_status(format=3)), "t") is None


def _node(content: bytes) -> Node:
    return Node(content, version=0, czxid=1, mzxid=1, modified_ms=0, ephemeral_owner=0)
