"""Notes and refusals about a publish task before it is created, without a broker or a source."""

from dataclasses import replace
from pathlib import Path

import pytest

from millrace.checks.requirement import Level
from millrace.cli.task.outputs import check_outputs, check_snapshot, notes_of
from millrace.consumer.checks.publish import check_secrets
from millrace.consumer.topic import structures
from millrace.errors import Fatal, Retryable
from millrace.producer.snapshot import request_check
from millrace.producer.snapshot.request_check import CheckedRequest
from millrace.schemas.documents import PublishTask, Start, TopicAddress
from millrace.schemas.requests.snapshot_request import SnapshotRequest
from millrace.schemas.table.structure import Column, ColumnType, TableSchema, TypeCode
from millrace.schemas.view.view import Mask, MaskKind, TableRule, View
from millrace.zk.tree.documents import Document, DocumentKey
from tests.kit.control.control import a_capture, a_publish, a_set

SHOP, CAPTURE = a_set(), a_capture(topic="shop")
DOCUMENTS: dict[DocumentKey, Document | Fatal] = {
    DocumentKey.of(document): document for document in (SHOP, CAPTURE)
}
VIEW = View((TableRule("shop.tmp_*", is_left_out=True), TableRule("shop.*")))
TASK = replace(a_publish(), start=Start(is_snapshot=True), view=VIEW)


def _answering(monkeypatch: pytest.MonkeyPatch, answer: CheckedRequest | Exception) -> list[object]:
    """The source's answer to requests, which are returned."""
    asked: list[object] = []

    def check(*arguments: object) -> CheckedRequest:
        asked.extend(arguments)
        if isinstance(answer, Exception):
            raise answer
        return answer

    monkeypatch.setattr(request_check, "check_request", check)
    return asked


def test_tables_that_no_snapshot_reads_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only those of the view. Rules that leave tables out ask for none."""
    left_out = (
        (("shop", "log"), "it has no primary key"),
        (("shop", "tmp_1"), "it has no primary key"),
    )
    asked = _answering(monkeypatch, CheckedRequest((("shop", "a"),), left_out))
    note = check_snapshot(TASK, DOCUMENTS)
    assert note == "the snapshot has no rows of shop.log (it has no primary key)"
    assert asked == [CAPTURE, SHOP, SnapshotRequest(TASK.name, ("shop.*",))]


def test_named_table_that_no_snapshot_reads_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its rows are what the operator asks for. A source that does not answer leaves a note."""
    for refusal in (
        Fatal("MR-4240", "shop.log: it has no primary key"),
        Fatal("MR-1005", "a snapshot needs SELECT on shop.*", fix="GRANT SELECT"),
    ):
        _answering(monkeypatch, refusal)
        with pytest.raises(Fatal) as refused:
            check_snapshot(TASK, DOCUMENTS)
        assert refused.value is refusal
    _answering(monkeypatch, Retryable("MR-1001", "db1 refused"))
    assert "was not compared with the source: MR-1001" in check_snapshot(TASK, DOCUMENTS)
    assert "MR-4203" in check_snapshot(TASK, {})


def test_broker_that_does_not_answer_leaves_a_note(monkeypatch: pytest.MonkeyPatch) -> None:
    """The task is created all the same; its runner refuses what does not suit."""

    def away(_: object) -> None:
        raise Retryable("MR-3501", "no broker answers")

    monkeypatch.setattr(structures, "topic_tables", away)
    assert "was not compared with the tables of shop: MR-3501" in check_outputs(TASK, DOCUMENTS)


def test_key_of_a_mask_is_read_where_the_check_runs(tmp_path: Path) -> None:
    """Its text is in no requirement."""
    key = tmp_path / "salt"
    masks = (("mail", Mask(MaskKind.HMAC, secret=f"file:{key}")),)
    task = replace(TASK, view=View((TableRule("shop.*", masks=masks),)))
    assert [(one.level, one.code) for one in check_secrets(task)] == [(Level.FAIL, "MR-4106")]
    key.write_text("canary")
    (found,) = check_secrets(task)
    assert (found.level, found.found) == (Level.OK, "1 secret can be read")


def test_only_a_changed_view_or_start_is_compared_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A change of another field asks no server."""
    calls: list[str] = []

    def tables(address: TopicAddress) -> tuple[TableSchema, ...]:
        calls.append(address.topic)
        return ()

    monkeypatch.setattr(structures, "topic_tables", tables)
    _answering(monkeypatch, CheckedRequest((("shop", "a"),), ()))

    def compared(before: PublishTask | None) -> tuple[int, list[str]]:
        calls.clear()
        notes = notes_of(TASK, before, DOCUMENTS)
        return len(calls), notes

    assert compared(None) == (1, [])
    assert compared(TASK) == (0, [])
    none = "no table of the topic shop gets other rows under the new view"
    assert compared(replace(TASK, view=View((TableRule("*.*"),)))) == (1, [none])


def test_tables_with_other_rows_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """By their structures in the set topic: rules that are written differently may make the same rows."""
    id_column = Column("id", ColumnType(TypeCode.LONG), nullable=False)
    tables = [TableSchema("shop", name, (id_column,), primary_key=(0,)) for name in "abc"]
    monkeypatch.setattr(structures, "topic_tables", lambda _: tables)
    before = replace(TASK, view=View(tuple(TableRule(f"shop.{name}") for name in "ab")))
    (note,) = notes_of(replace(before, view=VIEW), before, DOCUMENTS)
    assert note == "tables of the topic shop with other rows under the new view: shop.c"
