"""A turn of a publish task without servers: each record is converted under the definition of its seq."""

import json
from contextlib import nullcontext
from dataclasses import dataclass, field, replace

import pytest

from millrace.consumer.publish.definitions import Definitions
from millrace.consumer.publish.mark import Mark, Position
from millrace.consumer.publish.order import PublishOrder
from millrace.consumer.publish.outgoing import SEQ, TOPIC, VALUE_END, VALUE_START, Outgoing
from millrace.consumer.publish.plans import PublishPlans
from millrace.consumer.publish.turn import PublishTurn, Tools, schema_texts
from millrace.consumer.records.row_schemas import RowSchemas
from millrace.consumer.task.publish_start import task_order
from millrace.errors import Fatal
from millrace.schemas.documents import Brokers, PublishTask, TopicAddress
from millrace.schemas.table.structure import Column, ColumnType, TypeCode
from millrace.schemas.view.format_options import FormatName, FormatOptions
from millrace.schemas.view.view import Mask, MaskKind, TableRule, View
from tests.kit.apply.local import ListSource
from tests.kit.apply.tables import integer, table, text
from tests.kit.apply.topic import COMMIT_MS, RecordStream

ORDERS = table("shop", "orders", integer("id"), text("name"), integer("amount"))
TASK = PublishTask(
    name="public",
    source=TopicAddress(topic="shop", brokers=Brokers("b:1")),
    format=FormatOptions.of(FormatName.JSON),
)
RULES = (
    TableRule("shop.orders"),
    TableRule("shop.orders", drop=("name",)),
    TableRule("shop.orders", "x.{table}", masks=(("name", Mask(MaskKind.REDACT)),)),
    TableRule("shop.orders", where="(`amount` < 5)", rename=(("amount", "total"),)),
)
BEGINS = (0, 12, 13, 30)
ROWS = 45
BEGIN = Position(0, 0, "", "id")


@dataclass
class Written:
    """The values that a turn wrote, by seq and topic, and the seqs that it committed.

    ``is_owner``: of all partitions, or of none.
    """

    values: dict[int, tuple[str, object]] = field(default_factory=dict)
    committed: list[int] = field(default_factory=list)
    position: Position | None = None
    is_owner: bool = True

    def owns(self, topic: str, partition: int) -> bool:
        """All or none."""
        return self.is_owner

    def write(self, outgoing: Outgoing) -> None:
        """Keep the values; a row that is written twice is an error."""
        octets = outgoing.payload.tobytes()
        for line in outgoing.lines.tolist():
            assert line[SEQ] not in self.values
            value = json.loads(octets[line[VALUE_START] : line[VALUE_END]])
            self.values[line[SEQ]] = (outgoing.topics[line[TOPIC]], value)

    def commit(self, position: Position, *, is_full: bool) -> None:
        """Keep the seq."""
        self.committed.append(position.seq)
        self.position = position


def _turn(
    stream: RecordStream,
    definitions: Definitions,
    *,
    rows: int,
    accepted: tuple[int, ...] = (),
    after: Position = BEGIN,
) -> tuple[PublishTurn, Written]:
    """A turn over the stream, of which at most ``rows`` records are taken at once."""
    written = Written()
    order = PublishOrder(
        task=task_order(TASK, epoch=1), definitions=definitions, slot=0, accepted=accepted
    )
    source = ListSource(stream.values, 0, rows, at=after.next_offset)
    tools = Tools(source, written, str)
    schemas = dict(after.schemas)
    texts = schema_texts(stream.values.__getitem__, schemas)
    plans = PublishPlans(definitions.at(1), RowSchemas(texts))
    return PublishTurn(order, tools, plans, after.reached("shop"), "", schemas), written


def _run(
    stream: RecordStream, definitions: Definitions, *, rows: int, accepted: tuple[int, ...] = ()
) -> Written:
    turn, written = _turn(stream, definitions, rows=rows, accepted=accepted)
    turn.run()
    return written


def _stream(ddl_at: int = -1) -> RecordStream:
    stream = RecordStream()
    stream.fence()
    for number in range(ROWS):
        if number == ddl_at:
            sql = "ALTER TABLE shop.orders MODIFY amount VARCHAR(3)"
            stream.ddl(sql, kind="alter_table")
        stream.insert(ORDERS, {"id": number, "name": f"n{number}", "amount": number % 10})
        stream.commit()
    return stream


def _definitions(begins: tuple[int, ...], rules: tuple[TableRule, ...]) -> Definitions:
    return Definitions(begins, tuple(replace(TASK, view=View((rule,))) for rule in rules))


def _expected(number: int, rule: TableRule) -> tuple[str, object] | None:
    """The topic and the row under this rule, by plain Python."""
    row: dict[str, object] = {"id": number, "name": f"n{number}", "amount": number % 10}
    topic = "public.shop.orders"
    match RULES.index(rule):
        case 1:
            del row["name"]
        case 2:
            row["name"], topic = None, "public.x.orders"
        case 3:
            row["total"] = row.pop("amount")
            return (topic, row) if number % 10 < 5 else None
    return topic, row


@pytest.mark.parametrize("rows", [1, 2, 7, 1000])
def test_each_row_is_converted_under_the_definition_of_its_seq(rows: int) -> None:
    """Wherever the records are cut; two definitions follow each other after one row."""
    definitions = _definitions(BEGINS, RULES)
    written = _run(_stream(), definitions, rows=rows)
    for seq in range(1, ROWS + 1):
        rule = definitions.at(seq).view.rules[0]
        assert written.values.get(seq) == _expected(seq - 1, rule), seq
    assert written.committed[-1] == ROWS


@pytest.mark.parametrize("rows", [1, 1000])
def test_statement_is_judged_by_the_definition_of_its_seq(rows: int) -> None:
    """A slot that comes later passes it under the view with which the operator answered, not under the one before."""
    stream = _stream(ddl_at=20)  # it has seq 21
    before, after = RULES[3], RULES[0]
    written = _run(stream, _definitions((0, 21), (before, after)), rows=rows)
    assert len(written.values) == 10 + ROWS - 20
    with pytest.raises(Fatal, match="seq 21"):
        _run(stream, _definitions((0, 22), (before, after)), rows=rows)
    accepted = _run(stream, _definitions((0, 22), (before, after)), rows=rows, accepted=(21,))
    assert accepted.values == written.values


@pytest.mark.parametrize("rows", [1, 1000])
@pytest.mark.parametrize("is_new_start", [False, True])
@pytest.mark.parametrize(
    ("former", "passes"), [(TypeCode.SHORT, True), (TypeCode.LONGLONG, False)], ids=["small", "big"]
)
def test_statement_is_judged_by_the_structure_of_the_last_row(
    rows: int, is_new_start: bool, former: TypeCode, passes: bool
) -> None:
    """A statement gave the table a former structure back, whose schema ID is lower; also after a new start."""
    other = TypeCode.LONGLONG if passes else TypeCode.SHORT
    stream, definitions = RecordStream(), _definitions((0,), RULES[3:])
    for code in (former, other, former):
        columns = (integer("id"), text("name"), Column("amount", ColumnType(code), False))
        stream.insert(
            table("shop", "orders", *columns), {"id": stream.seq, "name": "n", "amount": 1}
        )
        stream.commit()
    turn, written = _turn(stream, definitions, rows=rows)
    if is_new_start:
        turn.run()
        assert written.position is not None
        records = Mark(position=written.position).records()
        stored = [(key, value) for key, value in records.items() if value is not None]
        after = Mark.of(stored).position
        assert after is not None
        turn, _ = _turn(stream, definitions, rows=rows, after=after)
    stream.ddl("ALTER TABLE shop.orders MODIFY amount INT", kind="alter_table")
    with nullcontext() if passes else pytest.raises(Fatal, match="MR-5204"):
        turn.run()


def test_slot_without_partitions_writes_nothing_and_advances() -> None:
    """Its progress is that of the set topic all the same."""
    turn, written = _turn(_stream(), _definitions((0,), RULES[:1]), rows=1000)
    written.is_owner = False
    turn.run()
    assert (written.values, written.committed[-1]) == ({}, ROWS)


def test_statement_moves_the_time_of_the_last_commit() -> None:
    """Otherwise the lag after an idle hour and a statement was an hour."""
    stream = RecordStream()
    stream.insert(ORDERS, {"id": 1, "name": "a", "amount": 1})
    stream.ddl("CREATE TABLE shop.other (id INT)", kind="create_table")
    turn, _ = _turn(stream, _definitions((0,), RULES[:1]), rows=1000)
    after = turn.run()
    assert after.commit_ms == COMMIT_MS, "the statement's; that of the row is another"


def test_rows_before_a_statement_are_committed() -> None:
    """The task stops after them, so the next definition begins at the statement."""
    turn, written = _turn(_stream(ddl_at=20), _definitions((0,), RULES[3:]), rows=1000)
    with pytest.raises(Fatal) as stopped:
        turn.run()
    assert stopped.value.code == "MR-5204"
    assert written.committed[-1] == 20
    assert len(written.values) == 10
