"""The ledger's binlog, told by foreign decoders and by the converter: the same ledger, the same values."""

from collections.abc import Iterator

import pytest

from deploy.servers import DatabaseServer, sql
from deploy.servers.programs import mysql_programs
from deploy.workload.ledger import create_ledger, run_ledger
from deploy.workload.ledger_parts import LedgerCounts
from deploy.workload.shop import Connection
from schemas.coordinates import Coordinates
from schemas.documents import TableFilter
from tests.converter_rig import SUBDIR, Conversion, FileReader, raw_records
from tests.fix_servers import FLAVOURS, SERVICE
from tests.ledger.binlog import BinlogOracle, Login, read_binlog, status_of
from tests.ledger.binlog_text import TextOracle, parse_rows, read_text
from tests.ledger.books_oracle import BooksOracle
from tests.ledger.record import Message, Schema, parse_schema, read_message
from tests.ledger.topic_oracle import TopicOracle

LOAD_S = 4.0
DATABASE = "ledger_binlog"


@pytest.fixture(params=FLAVOURS, ids=str)
def server(request: pytest.FixtureRequest) -> DatabaseServer:
    """A single server of each flavour."""
    found = request.getfixturevalue(f"{request.param}_server")
    assert isinstance(found, DatabaseServer)
    return found


def test_the_converter_tells_the_same_ledger_as_foreign_decoders(server: DatabaseServer) -> None:
    """Read by fastavro alone: dense, without ghosts, the sum kept, and every value that the other decoder keeps."""
    server.execute("FLUSH BINARY LOGS")
    file, position = status_of(server)
    counts = LedgerCounts()

    def connect() -> Connection:
        return sql.open_root(server.socket, database=DATABASE)

    create_ledger(lambda: sql.open_root(server.socket), database=DATABASE)
    run_ledger(connect, duration_s=LOAD_S, seed=5, counts=counts, rate=100)
    login = Login(server.host, server.port, SERVICE.user, SERVICE.password)
    topic, books = TopicOracle(is_whole=True), BooksOracle(DATABASE)
    binlog = BinlogOracle(DATABASE, read_binlog(login, file, position, DATABASE))
    oracles: list[TopicOracle | BooksOracle | BinlogOracle | TextOracle] = [topic, books, binlog]
    text: TextOracle | None = None
    programs = mysql_programs()
    if server.flavour == "mysql" and programs is not None and programs.mysqlbinlog is not None:
        lines = read_text(programs.mysqlbinlog, [server.binlog_dir / file], position)
        text = TextOracle(DATABASE, parse_rows(lines, DATABASE))
        oracles.append(text)
    for message in _converted(server, file):
        for oracle in oracles:
            oracle.feed(message)
    books.finish(counts.acknowledged)
    binlog.finish()
    if text is not None:
        text.finish()
    assert counts.ddl
    assert counts.rolled_back
    assert counts.in_savepoints
    assert binlog.rows_compared > counts.committed
    assert binlog.values_lost < binlog.values_compared / 10
    server.execute(f"DROP DATABASE {DATABASE}")


def _converted(server: DatabaseServer, file: str) -> Iterator[Message]:
    conversion = Conversion(
        FileReader.of_server(server.binlog_dir),
        flavour=server.flavour,
        filter=TableFilter(include=(f"{DATABASE}.*",)),
        at=Coordinates(SUBDIR, file, 4),
    )
    schemas: dict[int, Schema] = {}

    def schema_of(number: int) -> Schema:
        if number not in schemas:
            texts = {id_: text for (_, text), id_ in conversion.registry.ids.items()}
            schemas[number] = parse_schema(texts[number])
        return schemas[number]

    offset = 0
    for batch in conversion.batches():
        for _, value in raw_records(batch):
            yield read_message(offset, value, schema_of)
            offset += 1
