"""The topic of schema changes: a record for each statement about tables of the view, and one for each structure.

    statement    at its seq: the text, if the view hides nothing of it, and which tables it creates, alters or drops
    structure    at the seq of the first row that has it: its columns. No code derives a structure from DDL

Both follow from the set topic, so a replay makes the same records; ``part`` is 0. The announced structures are stored
with the position.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np

from millrace.consumer.format.cloud_events import (
    SCHEMA_CHANGE,
    TEXTS,
    constant_headers,
    event_source,
    single_texts,
)
from millrace.consumer.format.schema_changes import Struct, TableChange
from millrace.consumer.kernel import walk
from millrace.consumer.publish.outgoing import Message, Outgoing, outgoing_of
from millrace.consumer.publish.plans import PublishPlans
from millrace.consumer.records.numbers import RecordNumbers
from millrace.consumer.records.row_schemas import layout_of
from millrace.consumer.records.rows import Rows
from millrace.consumer.view.program import view_of
from millrace.schemas.record.avro_codec import Plain, decode
from millrace.schemas.record.avro_schema import SOURCE_VERSION
from millrace.schemas.record.control import DdlRecord
from millrace.schemas.record.framing import unframe
from millrace.schemas.view.ddl import TableKey
from millrace.schemas.view.structure_changes import ChangeType, StructureChange, changes_of

_STALE = -1  # the begin of no definition


@dataclass(slots=True)
class SchemaChanges:
    """``announced``: by the ID of a row schema, the first seq of the definition under which it was announced.

    Of each table, the newest alone.
    """

    announced: dict[int, int] = field(default_factory=dict)

    def of_rows(
        self, plans: PublishPlans, rows: Rows, numbers: RecordNumbers, *, begin: int
    ) -> Iterator[Outgoing]:
        """A record for each structure that is new among these rows of the view. ``begin``: the definition's."""
        if not len(numbers):
            return
        slots = rows.slots(numbers)
        unique, firsts = np.unique(slots, return_index=True)
        for at in np.argsort(firsts):
            slot, number = int(unique[at]), int(numbers[firsts[at]])
            schema_id = int(plans.programs.ids[slot])
            if self.announced.get(schema_id) == begin:
                continue
            layout = plans.programs.layouts[slot]
            before = self._announced_of(plans, (layout.table.database, layout.table.table))
            is_same = any(
                layout_of(plans.schemas.texts[one]).table == layout.table
                and self.announced[one] == begin
                for one in before
            )
            if is_same:
                continue
            for one in before:
                del self.announced[one]
            self.announced[schema_id] = begin
            view = view_of(plans.task.view, layout)
            assert view is not None, "the rows of other tables are left out"
            source = _source_of_row(plans, rows, number, schema_id)
            source |= {"db": view.name[0], "table": view.name[1]}
            type_ = ChangeType.ALTER if before else ChangeType.CREATE
            yield _outgoing(
                plans,
                source,
                "",
                (TableChange(type_, view.name, view),),
                seq=int(rows.column(walk.SEQ)[number]),
            )

    def of_statement(self, plans: PublishPlans, record: DdlRecord) -> Outgoing | None:
        """The record of a statement; None if no table of the view is concerned."""
        changed = changes_of(record, plans.task.view, plans.tables)
        if changed is None:
            return None
        self._forget(plans, changed.changes)
        database, table = changed.table
        place, origin = record.source.place, record.source.origin
        source = _source(
            plans,
            {
                "connector": str(origin.connector),
                "ts_ms": record.ts_ms,
                "db": database,
                "table": table,
                "server_id": place.server_id,
                "gtid": place.gtid,
                "file": place.file,
                "pos": place.pos,
                "row": 0,
            },
        )
        changes = tuple(TableChange(one.type, one.table) for one in changed.changes)
        return _outgoing(plans, source, changed.text, changes, seq=record.source.seq)

    def _forget(self, plans: PublishPlans, changes: tuple[StructureChange, ...]) -> None:
        """The next row of each changed table announces its structure, that of a dropped one as a new table's."""
        for change in changes:
            named = _lower_case(change.origin)  # a server may ignore the case of names
            for one in [one for one, own in self._tables(plans) if _lower_case(own) == named]:
                if change.type is ChangeType.DROP:
                    del self.announced[one]
                else:
                    self.announced[one] = _STALE

    def _announced_of(self, plans: PublishPlans, table: TableKey) -> list[int]:
        """The IDs of a table's structures."""
        return [one for one, own in self._tables(plans) if own == table]

    def _tables(self, plans: PublishPlans) -> list[tuple[int, TableKey]]:
        texts = plans.schemas.texts
        known = [(one, layout_of(texts[one]).table) for one in self.announced if one in texts]
        return [(one, (table.database, table.table)) for one, table in known]


def _lower_case(table: TableKey) -> TableKey:
    return table[0].lower(), table[1].lower()


def _source_of_row(
    plans: PublishPlans, rows: Rows, number: int, schema_id: int
) -> dict[str, Plain]:
    _, body = unframe(rows.values.value(number))
    row = decode(plans.schemas.texts[schema_id], body)
    logged = row["source"]
    assert isinstance(logged, dict)
    fields = ("connector", "server_id", "gtid", "file", "pos", "row")
    plain = {name: logged[name] for name in fields} | {"ts_ms": row["ts_ms"]}
    is_snapshot = rows.records[number, walk.IS_SAFE] == 1
    return _source(plans, plain | {"snapshot": "incremental" if is_snapshot else "false"})


def _source(plans: PublishPlans, logged: Mapping[str, Plain]) -> dict[str, Plain]:
    """The block of Debezium's records, with its order of fields."""
    ts_ms = logged["ts_ms"]
    assert isinstance(ts_ms, int)
    return {
        "version": SOURCE_VERSION,
        "connector": logged["connector"],
        "name": plans.task.name,
        "ts_ms": ts_ms,
        "snapshot": logged.get("snapshot", "false"),
        "db": logged.get("db"),
        "sequence": None,
        "ts_us": ts_ms * 1000,
        "ts_ns": ts_ms * 1_000_000,
        "table": logged.get("table"),
        "server_id": logged["server_id"],
        "gtid": logged["gtid"],
        "file": logged["file"],
        "pos": logged["pos"],
        "row": logged["row"],
        "thread": None,
        "query": None,
    }


def _outgoing(
    plans: PublishPlans, source: Struct, text: str, changes: tuple[TableChange, ...], *, seq: int
) -> Outgoing:
    task = plans.task
    topic = task.format.schema_change_topic
    format_ = plans.schema_changes(str(source["connector"]))
    key, value = format_.record(source, text, changes)
    message = Message(topic, 0, key, value, seq, 0)
    if not task.format.cloudevents:
        return outgoing_of(message)
    named = topic.removesuffix(task.topics.suffix)
    ts_ms = source["ts_ms"]
    assert isinstance(ts_ms, int)
    own = event_source(task.source.topic, named)
    texts = single_texts(own, (seq, 0), SCHEMA_CHANGE, ts_ms)
    return outgoing_of(
        message, constant_headers(task.format.name), dict(zip(TEXTS, texts, strict=True))
    )
