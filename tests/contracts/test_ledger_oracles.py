"""The ledger's oracles pass an intact topic and name every violation."""

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from datetime import datetime, timedelta

import pytest
from pymysqlreplication.constants import FIELD_TYPE

from tests.oracle.binlog import BinlogOracle, Column, Logged
from tests.oracle.binlog_text import TextOracle, TextRow, parse_rows
from tests.oracle.books import BooksOracle, Table, check_rows
from tests.oracle.reader import Reading
from tests.oracle.record import Change, Ddl, Message, Step, parse_schema, read_message
from tests.oracle.story import (
    ACKNOWLEDGED,
    DATABASE,
    entry,
    ledger_messages,
    logged,
    printed,
    renumbered,
    row,
)
from tests.oracle.tables import check_sums
from tests.oracle.topic import TopicOracle

Harm = Callable[[list[Message]], list[Message]]


def _topic(messages: list[Message], *, is_whole: bool = True) -> None:
    oracle = TopicOracle(is_whole=is_whole)
    for message in messages:
        oracle.feed(message)
    oracle.finish()


def _books(messages: list[Message]) -> None:
    oracle = BooksOracle(DATABASE)
    for message in messages:
        oracle.feed(message)
    oracle.finish(ACKNOWLEDGED)


def _binlog(messages: list[Message]) -> None:
    oracle = BinlogOracle(DATABASE, logged(ledger_messages()))
    for message in messages:
        oracle.feed(message)
    oracle.finish()


def _text(messages: list[Message]) -> None:
    oracle = TextOracle(DATABASE, printed(ledger_messages()))
    for message in messages:
        oracle.feed(message)
    oracle.finish()


def _entry_at(messages: list[Message], writer: int, n: int) -> int:
    """Return the place of an entry."""
    wanted = {"writer": writer, "n": n}
    for place, message in enumerate(messages):
        change = message.change
        image = change.after if isinstance(change, Change) and change.table == "entries" else None
        if image is not None and wanted.items() <= image.items():
            return place
    raise LookupError(writer, n)


def _of(messages: list[Message], writer: int, n: int) -> list[Message]:
    """Return the source transaction of an entry."""
    gtid = messages[_entry_at(messages, writer, n)].gtid
    return [message for message in messages if message.gtid == gtid]


def _without(messages: list[Message], gone: list[Message]) -> list[Message]:
    return [message for message in messages if message not in gone]


def _place(messages: list[Message], writer: int, n: int) -> int:
    return messages.index(_of(messages, writer, n)[0])


def _inserted(messages: list[Message], place: int, *new: Message) -> list[Message]:
    return [*messages[:place], *new, *messages[place:]]


def _offsets(messages: list[Message]) -> list[Message]:
    """Renumber only the offsets."""
    return [replace(message, offset=offset) for offset, message in enumerate(messages)]


def _swapped(messages: list[Message], place: int) -> list[Message]:
    made = list(messages)
    made[place], made[place + 1] = made[place + 1], made[place]
    return made


def _changed(messages: list[Message], place: int, change: Change | Ddl) -> list[Message]:
    made = list(messages)
    made[place] = replace(made[place], change=change)
    return made


def _seqs(messages: list[Message]) -> list[Message]:
    """Renumber offsets and seq; places in source transactions do not change."""
    fixed = renumbered(messages)
    return [replace(new, step=old.step) for new, old in zip(fixed, messages, strict=True)]


def _cut(place_in_transaction: int) -> Harm:
    """One row of the transaction of entry (0, 1) is lost without a trace."""
    return lambda m: _seqs(_without(m, [_of(m, 0, 1)[place_in_transaction]]))


def _early_last(messages: list[Message]) -> list[Message]:
    place = _place(messages, 0, 1)
    step = messages[place].step
    assert step is not None
    made = list(messages)
    made[place] = replace(made[place], step=replace(step, is_last=True))
    return made


def _interleaved(messages: list[Message]) -> list[Message]:
    one, two = _of(messages, 0, 1), _of(messages, 1, 1)
    rest = _without(messages, two)
    return _seqs(_inserted(rest, rest.index(one[1]), *two))


TOPIC_HARMS: dict[str, tuple[Harm, str]] = {
    "a record is missing": (
        lambda m: _offsets(_without(m, [_of(m, 0, 1)[1]])),
        "seq 21 after seq 19",
    ),
    "a record comes twice": (
        lambda m: _offsets(_inserted(m, _entry_at(m, 0, 1), m[_entry_at(m, 0, 1)])),
        "seq 21 after seq 21",
    ),
    "two records change places": (
        lambda m: _offsets(_swapped(m, _place(m, 0, 1))),
        "seq 20 after",
    ),
    "a transaction without its first row": (_cut(0), "begins with row 2"),
    "a transaction without a middle row": (_cut(1), "row 3 after row 1"),
    "a transaction without its last row": (_cut(2), "is not whole"),
    "a transaction comes twice": (
        lambda m: _seqs(_inserted(m, _place(m, 1, 1), *_of(m, 0, 1))),
        "has ended before",
    ),
    "a transaction inside another": (_interleaved, "is not whole"),
    "the last flag is early": (_early_last, "has ended before"),
    "an older owner writes": (
        lambda m: [*m[:-1], replace(m[-1], epoch=3)],
        "epoch 3 after epoch 4",
    ),
    "an offset comes twice": (lambda m: [*m, m[-1]], "after offset"),
    "the end is missing": (lambda m: m[:-1], "without a resolved record"),
    "the end is inside a transaction": (lambda m: m[: _entry_at(m, 0, 2)], "has no last row"),
    "the beginning is missing": (lambda m: m[4:], "does not begin here"),
}


@pytest.mark.parametrize("name", TOPIC_HARMS)
def test_order_violations_in_a_topic_are_reported(name: str) -> None:
    """Gap, repetition, swap, torn transaction, early end and older owner are reported."""
    harm, words = TOPIC_HARMS[name]
    with pytest.raises(AssertionError, match=words):
        _topic(harm(ledger_messages()))


def test_intact_topic_passes_every_oracle_from_every_offset() -> None:
    """There is no false alarm; the order can be checked from any offset."""
    messages = ledger_messages()
    for oracle in (_topic, _books, _binlog, _text):
        oracle(messages)
    for start in range(1, len(messages)):
        _topic(messages[start:], is_whole=False)


def _as_ghost(messages: list[Message], place: int) -> list[Message]:
    change = messages[place].change
    assert isinstance(change, Change)
    assert change.after is not None
    return _changed(messages, place, replace(change, after={**change.after, "ghost": 1}))


def _extra(messages: list[Message], change: Change) -> list[Message]:
    """Add one row to the transaction of entry (0, 2), with the right count."""
    place = _entry_at(messages, 0, 2)
    made = _changed(messages, place, entry(0, 2, 4))
    return renumbered(_inserted(made, place, replace(made[place - 1], change=change)))


def _half(messages: list[Message]) -> list[Message]:
    """Return a transfer that only withdraws."""
    place = _entry_at(messages, 0, 2)
    made = _changed(messages, place, entry(0, 2, 2))
    return renumbered(_without(made, [made[place - 1]]))


def _reordered(messages: list[Message]) -> list[Message]:
    """Swap two whole transactions."""
    later = _of(messages, 0, 2)
    rest = _without(messages, later)
    return renumbered(_inserted(rest, _place(rest, 0, 1), *later))


def _again(transaction: list[Message]) -> list[Message]:
    """Repeat it under another GTID."""
    steps = [message.step for message in transaction]
    return [
        replace(message, step=replace(step, gtid="0-1-99"))
        for message, step in zip(transaction, steps, strict=True)
        if step is not None
    ]


BOOKS_HARMS: dict[str, tuple[Harm, str]] = {
    "a transaction is missing": (
        lambda m: renumbered(_without(m, _of(m, 1, 1))),
        "entry 2 of writer 1 after entry 0",
    ),
    "the last transaction is missing": (
        lambda m: renumbered(_without(m, _of(m, 1, 2))),
        "acknowledged",
    ),
    "an entry comes twice": (
        lambda m: renumbered(_inserted(m, _place(m, 1, 2), *_again(_of(m, 1, 1)))),
        "entry 1 of writer 1 after entry 1",
    ),
    "two transactions change places": (
        _reordered,
        "the before image differs from the last after image",
    ),
    "a rolled-back row is seen": (lambda m: _as_ghost(m, _place(m, 1, 1) + 1), "was rolled back"),
    "a row of a savepoint is seen": (
        lambda m: _extra(m, row("never", None, {"id": 7})),
        "was rolled back",
    ),
    "a row of a transaction is missing": (
        lambda m: renumbered(_without(m, [m[_place(m, 1, 1) + 1]])),
        "2 rows, and the entry says 3",
    ),
    "money vanishes": (_half, "add up to 11800, not to 12000"),
    "an update of something else": (
        lambda m: _extra(m, row("accounts", {"id": 5, "balance": 3}, {"id": 5, "balance": 3})),
        "the before image differs from the last after image",
    ),
    "a delete of what is not there": (
        lambda m: _extra(m, row("accounts", {"id": 55, "balance": 0}, None)),
        "a row that is not there",
    ),
    "a delete of a loose row too many": (
        lambda m: _extra(m, row("loose", {"writer": 3, "body": "x", "ghost": 0}, None)),
        "a row that is not there",
    ),
    "a key comes twice": (
        lambda m: _extra(m, row("accounts", None, {"id": 5, "balance": 0})),
        "a second row",
    ),
    "a row of a table that is not there": (
        lambda m: _extra(m, row("passing", None, {"id": 5})),
        "which does not exist",
    ),
    "an insert with an image before": (
        lambda m: _extra(m, replace(row("loose", None, {}), before={}, op="c")),
        "images of",
    ),
    "another ledger": (lambda _: [], "acknowledged"),
}


@pytest.mark.parametrize("name", BOOKS_HARMS)
def test_ledger_violations_in_a_well_formed_topic_are_reported(name: str) -> None:
    """Lost, forbidden, reordered and wrong rows are reported although all numbers are right."""
    harm, words = BOOKS_HARMS[name]
    harmed = harm(ledger_messages())
    if harmed:
        _topic(harmed)
    with pytest.raises(AssertionError, match=words):
        _books(harmed)


def _other_ddl(messages: list[Message]) -> list[Message]:
    place = next(p for p, m in enumerate(messages) if isinstance(m.change, Ddl))
    return _changed(messages, place, Ddl("", f"CREATE DATABASE `{DATABASE}` x"))


BINLOG_HARMS: dict[str, tuple[Harm, str]] = {
    "a transaction is missing": (lambda m: renumbered(_without(m, _of(m, 1, 1))), "follows|has"),
    "the last one is missing": (
        lambda m: renumbered(_without(m, _of(m, 1, 2))),
        "not in the topic",
    ),
    "a row is missing": (lambda m: renumbered(_without(m, [_of(m, 0, 1)[0]])), "has|in the binlog"),
    "a row comes twice": (
        lambda m: renumbered(_inserted(m, _place(m, 0, 1), _of(m, 0, 1)[0])),
        "has|in the binlog",
    ),
    "a row too many at the end": (
        lambda m: renumbered([*m, m[_entry_at(m, 1, 2)]]),
        "is not in the binlog|does not have it",
    ),
    "two rows of a transaction change places": (
        lambda m: renumbered(_swapped(m, _place(m, 0, 1))),
        "has|in the binlog",
    ),
    "two transactions change places": (_reordered, "follows|has"),
}


@pytest.mark.parametrize("name", BINLOG_HARMS)
@pytest.mark.parametrize("oracle", [_binlog, _text])
def test_topic_that_differs_from_the_binlog_is_reported(
    name: str, oracle: Callable[[list[Message]], None]
) -> None:
    """The foreign decoder and the server's own program each report it."""
    harm, words = BINLOG_HARMS[name]
    with pytest.raises(AssertionError, match=words):
        oracle(harm(ledger_messages()))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (entry(0, 1, 4), "row_count: 4; in the binlog 3"),
        (row("entries", None, {"n": 1, "writer": 0, "ghost": 0, "row_count": 3}), "columns"),
        (replace(entry(0, 1, 3), op="u"), "in the binlog follows"),
        (replace(entry(0, 1, 3), table="entry"), "in the binlog follows"),
        (replace(entry(0, 1, 3), after=None), "in the binlog"),
    ],
)
def test_value_that_differs_from_the_binlog_is_reported(change: Change, words: str) -> None:
    """A different value, column, operation, table or image is reported."""
    messages = ledger_messages()
    with pytest.raises(AssertionError, match=words):
        _binlog(_changed(messages, _entry_at(messages, 0, 1), change))


def test_statement_that_differs_from_the_binlog_is_reported() -> None:
    """A different text is reported."""
    with pytest.raises(AssertionError, match="in the binlog follows"):
        _binlog(_other_ddl(ledger_messages()))


@pytest.mark.parametrize(
    ("kind", "theirs", "fraction", "ours"),
    [
        (FIELD_TYPE.DATETIME2, datetime(2026, 1, 2, 3, 4, 5, 120000), 2, "2026-01-02 03:04:05.12"),  # noqa: DTZ001
        (FIELD_TYPE.TIMESTAMP2, datetime(2026, 1, 2, 3, 4, 5), 0, "2026-01-02 03:04:05"),  # noqa: DTZ001
        (FIELD_TYPE.TIME2, timedelta(hours=100, microseconds=7), 6, "100:00:00.000007"),
        (FIELD_TYPE.TIME2, -timedelta(hours=1), 0, "-01:00:00"),
    ],
)
def test_truncated_time_is_reported(kind: int, theirs: object, fraction: int, ours: str) -> None:
    """The column gives the length, not the value compared."""
    change = row("loose", None, {"at": theirs})
    for text in (ours, ours[:-1], ours[:10], ""):
        oracle = BinlogOracle(
            DATABASE, [Logged("0-1-1", change, {"at": Column(kind, fraction=fraction)})]
        )
        told_as = Message(
            0, "row", 1, None, Step("0-1-1", 1, True), row("loose", None, {"at": text})
        )
        with (
            nullcontext() if text == ours else pytest.raises(AssertionError, match="in the binlog")
        ):
            oracle.feed(told_as)


PRINTED = """\
SET @@SESSION.GTID_NEXT= '5a33643f-e5b5-11f1-a196-02fc00000001:7'/*!*/;
### UPDATE `books`.`accounts`
### WHERE
###   @1=-3 /* INT meta=0 nullable=0 is_null=0 */
### SET
###   @1=4 /* INT meta=0 nullable=0 is_null=0 */
### INSERT INTO `shop`.`orders`
### SET
###   @1=1 /* INT meta=0 nullable=0 is_null=0 */
SET @@SESSION.GTID_NEXT= '5a33643f-e5b5-11f1-a196-02fc00000001:8'/*!*/;
### INSERT INTO `books`.`loose`
### SET
###   @1='### DELETE FROM `books`.`loose`' /* VARSTRING(160) meta=160 nullable=1 is_null=0 */
###   @2=NULL /* INT meta=0 nullable=1 is_null=1 */
### DELETE FROM `books`.`loose`
### WHERE
###   @1=7 /* LONGINT meta=0 nullable=1 is_null=0 */
"""


def test_mysqlbinlog_output_is_parsed() -> None:
    """The parser gives source transaction, table, operation and first column, and ignores other databases."""
    ids = "5a33643f-e5b5-11f1-a196-02fc00000001:"
    assert list(parse_rows(PRINTED.splitlines(), "books")) == [
        TextRow(f"{ids}7", "accounts", "u", -3),
        TextRow(f"{ids}8", "loose", "c", None),
        TextRow(f"{ids}8", "loose", "d", 7),
    ]


@pytest.mark.parametrize(
    ("again", "words"),
    [
        ([(0, b"a"), (3, b"c")], "read first: offset 1; read again: offset 3"),
        ([(0, b"a"), (1, b"x"), (3, b"c")], "read first: offset 1; read again: offset 1"),
        ([(0, b"a"), (1, b"b")], "offset 3 was read first and is missing when read again"),
    ],
)
def test_differing_readings_are_reported(again: list[tuple[int, bytes]], words: str) -> None:
    """A record that disappeared or changed is reported."""
    first = Reading([(0, b"a"), (1, b"b"), (3, b"c")])
    first.check_begins(Reading([*first.seen, (9, b"z")]))
    with pytest.raises(AssertionError, match=words):
        first.check_begins(Reading(again))


@pytest.mark.parametrize(
    ("source", "target"),
    [
        ({"a": 1, "b": 2}, {"a": 1, "b": 3}),
        ({"a": 1, "b": 2}, {"a": 1}),
        ({"a": 1}, {"a": 1, "b": 2}),
        ({"a": None}, {"a": None}),
        ({}, {}),
    ],
)
def test_differing_checksums_are_reported(
    source: dict[str, object], target: dict[str, object]
) -> None:
    """Another checksum, a missing or extra table, a missing checksum and no table at all are reported."""
    check_sums({"a": 1}, {"a": 1})
    with pytest.raises(AssertionError):
        check_sums(source, target)


def test_rows_that_differ_from_the_records_are_reported() -> None:
    """Missing rows, extra rows and other values are reported, with and without a key."""
    kept = Table(("id",), {(1,): {"id": 1, "v": 5}, (2,): {"id": 2, "v": 6}})
    check_rows("t", kept, [{"id": 1, "v": 5}, {"id": 2, "v": 6}])
    for rows in ([{"id": 1, "v": 5}], [{"id": n, "v": n + 4} for n in (1, 2, 3)]):
        with pytest.raises(AssertionError, match="only in"):
            check_rows("t", kept, rows)
    with pytest.raises(AssertionError, match="v: 6, 7"):
        check_rows("t", kept, [{"id": 1, "v": 5}, {"id": 2, "v": 7}])
    loose = Table(())
    loose.loose[(1, "x")] = 2
    check_rows("t", loose, [{"writer": 1, "body": "x"}] * 2)
    for number in (1, 3):
        with pytest.raises(AssertionError):
            check_rows("t", loose, [{"writer": 1, "body": "x"}] * number)


CONTROL = """{"type": "record", "name": "Resolved", "namespace": "millrace.control", "fields": [
 {"name": "control", "type": "string"}, {"name": "seq", "type": "long"}, {"name": "epoch", "type": "long"}]}"""
FRAMED = b"\0" + (9).to_bytes(4, "big") + b"\x10resolved\x0e\x06"


def test_record_is_decoded_by_its_schema_alone() -> None:
    """A record that is unframed, longer than its schema, or foreign is refused."""
    schemas = {9: parse_schema(CONTROL), 8: parse_schema(CONTROL.replace("Resolved", "Other"))}
    assert read_message(4, FRAMED, schemas.__getitem__) == Message(4, "resolved", 7, 3)
    for harmed in (b"\1" + FRAMED[1:], FRAMED + b"\0", FRAMED[:4] + b"\x08" + FRAMED[5:]):
        with pytest.raises(AssertionError):
            read_message(4, harmed, schemas.__getitem__)


def test_drop_logged_by_a_recovering_server_is_recognized() -> None:
    """MariaDB completes an interrupted DROP TABLE with IF EXISTS and adds a comment to the statement."""
    messages = ledger_messages()
    place = next(n for n, message in enumerate(messages) if isinstance(message.change, Ddl))
    sql = "DROP TABLE IF EXISTS /* generated by server */ `page` /* generated by server */"
    books = BooksOracle(DATABASE)
    books.tables["page"] = Table(("id",))
    for _ in range(2):
        books.feed(_changed(messages, place, Ddl(DATABASE, sql))[place])
        assert "page" not in books.tables


def test_drop_logged_again_by_a_replica_matches_the_binlog() -> None:
    """A replica may log IF EXISTS where the primary's file does not; another table is another statement."""
    messages = ledger_messages()
    place = next(n for n, message in enumerate(messages) if isinstance(message.change, Ddl))
    remark = "/* generated by server */"
    ours = Ddl(DATABASE, f"DROP TABLE IF EXISTS {remark} `page` {remark}")
    message = _changed(messages, place, ours)[place]
    for table, is_same in (("page", True), ("pages", False)):
        theirs = Logged(message.gtid, Ddl(DATABASE, f"DROP TABLE `{table}` {remark}"), {})
        oracle = BinlogOracle(DATABASE, [theirs])
        with nullcontext() if is_same else pytest.raises(AssertionError, match="binlog follows"):
            oracle.feed(message)
