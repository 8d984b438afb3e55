"""The plans of a publish task: for each row schema of the set topic, how its rows become records of an output topic.

A plan is made when the first row of its schema must be published. ``PublishPlans`` is a value: ``learned`` returns
larger ones, which keep the plans that are made.
"""

from collections.abc import Collection, Mapping
from copy import copy
from dataclasses import dataclass

import numpy as np

from millrace.consumer.format.avro_format import Register
from millrace.consumer.format.formats import make_format, without_registry
from millrace.consumer.format.heartbeats import HeartbeatFormat, make_heartbeat_format
from millrace.consumer.format.schema_changes import SchemaChangeFormat, make_schema_change_format
from millrace.consumer.format.table_format import FormatNames, TableFormat
from millrace.consumer.format.transactions import TransactionFormat, make_transaction_format
from millrace.consumer.kernel.compiled import Ints
from millrace.consumer.publish.outgoing import partition_by_table
from millrace.consumer.records.numbers import RecordNumbers
from millrace.consumer.records.row_schemas import RowSchemas, layout_of, make_programs
from millrace.consumer.records.rows import Rows
from millrace.consumer.view.mask_keys import MaskKeys
from millrace.consumer.view.program import ViewProgram, make_view_program, view_of
from millrace.errors import Fatal
from millrace.schemas.documents import PartitionBy, PublishTask
from millrace.schemas.gtid import Flavour
from millrace.schemas.record.row_layout import RowLayout
from millrace.schemas.table.structure import TableSchema
from millrace.schemas.view.ddl import TableKey


@dataclass(frozen=True, slots=True)
class TablePlan:
    """How rows of one structure of a table are published.

    ``partition``: that of records without a key, or of all if the table decides. ``by``: the places in the table of the
    columns that decide about the partition; () if the record's key or the table does. ``is_keyed``: the record's key
    decides.
    """

    program: ViewProgram
    format: TableFormat
    topic: str
    partition: int
    by: tuple[int, ...]
    is_keyed: bool


class PublishPlans:
    """The plans of one definition of a task (``consumer.window.window.Plans``).

    ``register``: for the schemas of formats that have a registry.
    """

    def __init__(
        self, task: PublishTask, schemas: RowSchemas, register: Register = without_registry
    ) -> None:
        self.task = task
        self._register = register
        self.schemas = schemas
        self.programs = make_programs(schemas)
        self._newest = _newest_of(schemas)
        self._tables: dict[str, TablePlan] = {}
        self._admitted: dict[tuple[str, str], bool] = {}  # by name: asked for each window
        self._keys = MaskKeys()
        self._transactions: TransactionFormat | None = None
        self._heartbeats: HeartbeatFormat | None = None
        self._schema_changes: SchemaChangeFormat | None = None

    @property
    def admits_all(self) -> bool:
        """A view leaves out the tables of the system at least."""
        return False

    @property
    def transactions(self) -> TransactionFormat:
        """The format of the transaction topic, if the task has one."""
        if self._transactions is None:
            # a rebuild has the schemas of the original topic
            topic = self.task.format.transaction_topic.removesuffix(self.task.topics.suffix)
            self._transactions = make_transaction_format(self.task.format, topic, self._register)
        return self._transactions

    @property
    def heartbeats(self) -> HeartbeatFormat:
        """The format of the heartbeats, if the task has some."""
        if self._heartbeats is None:
            task = self.task
            self._heartbeats = make_heartbeat_format(
                task.format, task.heartbeat_topic, self._register
            )
        return self._heartbeats

    def schema_changes(self, connector: str) -> SchemaChangeFormat:
        """The format of the topic of schema changes, if the task has one."""
        if self._schema_changes is None:
            options, suffix = self.task.format, self.task.topics.suffix
            topic = options.schema_change_topic.removesuffix(suffix)
            self._schema_changes = make_schema_change_format(
                options, topic, connector, self._register
            )
        return self._schema_changes

    def learned(self, texts: Mapping[int, str]) -> "PublishPlans":
        """These plans with more row schemas, by ID; the same object if all are known."""
        schemas = self.schemas
        for number, text in texts.items():
            schemas = schemas.learned(number, text)
        if schemas is self.schemas:
            return self
        plans = self._like(self.task, schemas)
        plans._tables, plans._keys, plans._admitted = self._tables, self._keys, self._admitted
        plans._transactions, plans._heartbeats = self._transactions, self._heartbeats
        plans._schema_changes = self._schema_changes
        return plans

    def of(self, task: PublishTask) -> "PublishPlans":
        """The plans of another definition with the same schemas; the same object for the same one."""
        return self if task == self.task else self._like(task, self.schemas)

    def _like(self, task: PublishTask, schemas: RowSchemas) -> "PublishPlans":
        plans = PublishPlans(task, schemas, self._register)
        texts = schemas.texts
        new = [number for number in texts if texts[number] != self.schemas.texts.get(number)]
        plans._newest = self._newest | _newest_of(schemas, new)
        return plans

    def through_view(self, rows: Rows, numbers: RecordNumbers) -> tuple[Rows, RecordNumbers]:
        """As they are: a format needs both images (``consumer.view.changes``)."""
        return rows, numbers

    def admits(self, slot: int) -> bool:
        """Whether the view has a slot's table."""
        table = self.programs.layouts[slot].table
        name = (table.database, table.table)
        if name not in self._admitted:
            self._admitted[name] = self.task.view.match(*name) is not None
        return self._admitted[name]

    @property
    def tables(self) -> Mapping[TableKey, TableSchema]:
        """The structure of each table that the topic has rows of: that of the last row, or of a later schema."""
        texts = self.schemas.texts
        return {table: layout_of(texts[number]).table for table, number in self._newest.items()}

    def after(self, slots: Ints) -> "PublishPlans":
        """These plans after rows of these slots (-1: of none); the same object if no structure is new or returns.

        A statement can give a table a former structure back, with its former schema ID.
        """
        programs, newest = self.programs, dict[TableKey, int]()
        for slot in last_met(slots, len(programs.ids)):
            table = programs.layouts[slot].table
            newest[table.database, table.table] = int(programs.ids[slot])
        if newest.items() <= self._newest.items():
            return self
        plans = copy(self)
        plans._newest = self._newest | newest
        return plans

    def in_order(self, schemas: Mapping[int, int]) -> dict[int, int]:
        """The same schemas by ID, those of the newest structures last. ``PublishPlans`` of this order know them."""
        newest = set(self._newest.values())
        return dict(sorted(schemas.items(), key=lambda one: one[0] in newest))

    def table(self, slot: int, gtid: str = "") -> TablePlan:
        """The plan of a slot's table, which the view has. ``gtid``: of one of its rows. Fatal MR-5201.

        Errors of the registry: ``registry.client``.
        """
        text = self.schemas.texts[int(self.programs.ids[slot])]
        plan = self._tables.get(text)
        if plan is None:
            layout = self.programs.layouts[slot]
            flavour = flavour_of(gtid)
            plan = _plan(self.task, layout, self._keys, flavour, self._register)
            self._tables[text] = plan
        return plan


def last_met(slots: Ints, count: int) -> list[int]:
    """The slots among these that are not -1, by the place where each is last."""
    last = np.full(count + 1, -1, np.int64)
    last[slots] = np.arange(
        len(slots)
    )  # of a repeated one the last place stays; -1 is the additional one
    met = np.flatnonzero(last[:count] >= 0)
    order: list[int] = met[np.argsort(last[met])].tolist()
    return order


def _newest_of(schemas: RowSchemas, numbers: Collection[int] | None = None) -> dict[TableKey, int]:
    """The last ID of each table, in the order of ``schemas``."""
    newest: dict[TableKey, int] = {}
    for number in schemas.texts if numbers is None else numbers:
        table = layout_of(schemas.texts[number]).table
        newest[table.database, table.table] = number
    return newest


def flavour_of(gtid: str) -> Flavour:
    """The flavor of the server that wrote it. A task has no other place for it: the set topic is all that it reads."""
    return Flavour.MARIADB if gtid and ":" not in gtid else Flavour.MYSQL


def _plan(
    task: PublishTask, layout: RowLayout, keys: MaskKeys, flavour: Flavour, register: Register
) -> TablePlan:
    view = view_of(task.view, layout)
    assert view is not None, "the rows of other tables are left out"
    topics = task.topics
    named = topics.partition_columns(*view.name)
    by: list[int] = []
    for name in named or ():
        places = [
            view.columns[at].source
            for at in view.key
            if view.columns[at].name.lower() == name.lower()
        ]
        if not places:
            key = ", ".join(view.columns[at].name for at in view.key) or "no key"
            raise Fatal(
                "MR-5205",
                f"partition_by of {layout.table.full_name}: found {name}, wanted a column of the key: {key}",
            )
        by += places
    topic = topics.name_of(task.name, *view.name)
    is_keyed = named is None and topics.partition_by is not PartitionBy.TABLE and bool(view.key)
    names = FormatNames(topic.removesuffix(topics.suffix), task.name, str(flavour))
    return TablePlan(
        make_view_program(view, layout, keys),
        make_format(task.format, view, layout, names, register),
        topic,
        partition_by_table(".".join(view.name), topics.partitions),
        tuple(by),
        is_keyed,
    )
