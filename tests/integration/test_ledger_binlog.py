"""One ledger's binlog, converted, decoded independently and applied: every reading gives the same ledger."""

import random
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from millrace.deploy.servers import DatabaseServer, sql
from millrace.deploy.servers.programs import mysql_programs
from millrace.deploy.workload.shop import Connection
from millrace.schemas.documents import TableFilter
from millrace.schemas.place import FIRST_POS, Coordinates
from tests.fixtures.servers import FLAVOURS, SERVICE, NewServer
from tests.kit.apply.local import LocalRecords, apply_task, backwards, ignore, in_turn, started
from tests.kit.capture.converter import SUBDIR, Conversion, FileReader, raw_records
from tests.kit.workload.ledger import create_ledger, run_ledger
from tests.kit.workload.ledger_parts import LedgerCounts
from tests.oracle.binlog import BinlogOracle, Login, read_binlog, status_of
from tests.oracle.binlog_text import TextOracle, parse_rows, read_text
from tests.oracle.books import BooksOracle
from tests.oracle.record import Message, Schema, parse_schema, read_message
from tests.oracle.tables import check_replayed, check_sums, sums_of
from tests.oracle.topic import TopicOracle

LOAD_S = 2.5
DDL_INTERVAL_S = 0.15
SEED = 5
DATABASE = "ledger_binlog"


@dataclass(frozen=True)
class LoggedLedger:
    """A finished ledger and its records."""

    server: DatabaseServer
    file: str
    position: int
    counts: LedgerCounts
    values: list[bytes]
    messages: list[Message]


@pytest.fixture(scope="module", params=FLAVOURS, ids=str)
def ledger(request: pytest.FixtureRequest) -> Iterator[LoggedLedger]:
    """A ledger on a single server of each flavor."""
    server = request.getfixturevalue(f"{request.param}_server")
    assert isinstance(server, DatabaseServer)
    server.execute("FLUSH BINARY LOGS")
    file, position = status_of(server)
    counts = LedgerCounts()

    def connect() -> Connection:
        return sql.open_root(server.socket, database=DATABASE)

    create_ledger(lambda: sql.open_root(server.socket), database=DATABASE)
    run_ledger(
        connect,
        duration_s=LOAD_S,
        seed=SEED,
        counts=counts,
        rate=100,
        ddl_interval_s=DDL_INTERVAL_S,
    )
    conversion = Conversion(
        FileReader.of_server(server.binlog_dir),
        flavour=server.flavour,
        filter=TableFilter(include=(f"{DATABASE}.*",)),
        at=Coordinates(SUBDIR, file, FIRST_POS),
    )
    values = [value for batch in conversion.batches() for _, value in raw_records(batch)]
    texts = {number: text for (_, text), number in conversion.registry.ids.items()}
    schemas: dict[int, Schema] = {number: parse_schema(text) for number, text in texts.items()}
    messages = [
        read_message(offset, value, schemas.__getitem__) for offset, value in enumerate(values)
    ]
    yield LoggedLedger(server, file, position, counts, values, messages)
    server.execute(f"DROP DATABASE {DATABASE}")


@pytest.mark.both_flavours
@pytest.mark.guarantee("complete")
def test_converter_and_independent_decoders_read_one_ledger(ledger: LoggedLedger) -> None:
    """Read with fastavro alone: no gap, no ghost, the sum kept, and every value equal to the other decoder's."""
    server = ledger.server
    login = Login(server.host, server.port, SERVICE.user, SERVICE.password)
    topic, books = TopicOracle(is_whole=True), BooksOracle(DATABASE)
    binlog = BinlogOracle(DATABASE, read_binlog(login, ledger.file, ledger.position, DATABASE))
    oracles: list[TopicOracle | BooksOracle | BinlogOracle | TextOracle] = [topic, books, binlog]
    text: TextOracle | None = None
    programs = mysql_programs()
    if server.flavour == "mysql":
        assert programs is not None
        assert programs.mysqlbinlog is not None, "no mysqlbinlog beside mysqld nor in the cache"
        lines = read_text(programs.mysqlbinlog, [server.binlog_dir / ledger.file], ledger.position)
        text = TextOracle(DATABASE, parse_rows(lines, DATABASE))
        oracles.append(text)
    for message in ledger.messages:
        for oracle in oracles:
            oracle.feed(message)
    books.finish(ledger.counts.acknowledged)
    binlog.finish()
    if text is not None:
        text.finish()
        assert text.rows_compared == binlog.rows_compared
    check_replayed(server, DATABASE, books.tables)
    assert ledger.counts.ddl
    assert ledger.counts.rolled_back
    assert ledger.counts.in_savepoints
    assert binlog.rows_compared > ledger.counts.committed
    assert binlog.values_lost < binlog.values_compared / 10


@pytest.mark.guarantee("applied")
def test_applied_ledger_matches_the_servers_checksums(
    ledger: LoggedLedger, new_server: NewServer
) -> None:
    """``CHECKSUM TABLE`` is equal for any batch cuts, in one lane and in many, with lanes in either order."""
    target = new_server(ledger.server.flavour)
    chance = random.Random(SEED)
    applier = started(target, apply_task("ledger"))
    first = 0
    while first < len(ledger.values):
        after = first + chance.choice((1, 100, 400, 4000))
        records = LocalRecords(
            ledger.values[first:after],
            first,
            is_large=chance.random() < 0.5,
            lane_order=chance.choice((in_turn, backwards)),
        )
        applier.process(records, ignore)
        first = after
    applier.close()
    books = BooksOracle(DATABASE)
    for message in ledger.messages:
        books.feed(message)
    check_sums(sums_of(ledger.server, DATABASE), sums_of(target, DATABASE))
    check_replayed(target, DATABASE, books.tables)
    target.execute(f"UPDATE {DATABASE}.accounts SET balance = balance + 1 LIMIT 1")
    with pytest.raises(AssertionError, match="'accounts'"):
        check_sums(sums_of(ledger.server, DATABASE), sums_of(target, DATABASE))
    with pytest.raises(AssertionError, match="accounts"):
        check_replayed(target, DATABASE, books.tables)
