"""Conditions on texts whose equality only the source knows: from its weights to the records of subscribers."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import pytest

from millrace.consumer.checks.conditions import compared_with_source
from millrace.consumer.view.source_texts import read_source_texts
from millrace.deploy.servers import DatabaseServer, KafkaServer
from millrace.drivers.mysql.catalog import read_collations
from millrace.drivers.mysql.connection import MySqlSession, connect, text_of
from millrace.errors import Fatal, Retryable
from millrace.schemas.documents import CaptureTask, PublishTask, Reader, SetDocument
from millrace.schemas.gtid import Flavour
from millrace.schemas.sql.quoting import string
from millrace.schemas.table.structure import Column, ColumnType, TableSchema, TextEncoding, TypeCode
from millrace.schemas.view.format_options import FormatName, FormatOptions
from millrace.schemas.view.view import TableRule, View
from tests.kit.apply.documents import local_set
from tests.kit.apply.local import endpoint_of
from tests.kit.apply.tables import integer, table, uuid
from tests.kit.apply.topic import RecordStream, TopicWriter
from tests.kit.control.control import a_capture
from tests.kit.publish.local import LocalPublisher, NoCapture, publish_task, published
from tests.kit.waiting import answered

pytestmark = [pytest.mark.usefixtures("trusting"), pytest.mark.both_flavours]

PASSWORD = "MILLRACE_TEST_TEXTS"
NAMES = (
    "straße",
    "STRASSE",
    "Straße",
    "strasse",
    "strase",
    "STRASE",
    "straſe",
    "strasze",
    "Strass",
    "",
)
LATE = "utf8mb4_unicode_ci"
RULE = TableRule("views_texts.*", where="name = 'straße'")


@dataclass
class OneSource(NoCapture):
    """A task that captures from one set."""

    document: SetDocument
    asked: int = 0

    def capture_task_of(self, task: Reader) -> CaptureTask:
        return a_capture(of=self.document.name, topic=task.source.topic)

    def set_document(self, name: str) -> SetDocument:
        self.asked += 1
        return self.document


@pytest.fixture
def session(server: DatabaseServer) -> Iterator[MySqlSession]:
    """A source with a table of two collations; MariaDB has a UUID column."""
    with connect(endpoint_of(server), autocommit=True) as session:
        ids = "BINARY(16)" if session.flavour is Flavour.MYSQL else "UUID"
        session.run(b"CREATE DATABASE views_texts")
        session.run(
            f"CREATE TABLE views_texts.people (id INT PRIMARY KEY, u {ids} NOT NULL,"
            f" name VARCHAR(20) CHARACTER SET utf8mb4 COLLATE {_collation(session)})".encode()
        )
        yield session
        session.run(b"DROP DATABASE views_texts")


def _collation(session: MySqlSession) -> str:
    is_mysql = session.flavour is Flavour.MYSQL
    return "utf8mb4_0900_ai_ci" if is_mysql else "utf8mb4_general_ci"


@pytest.fixture
def document(server: DatabaseServer, monkeypatch: pytest.MonkeyPatch) -> SetDocument:
    """The set of the source."""
    monkeypatch.setenv(PASSWORD, server.password)
    return local_set("texts", [server.port], user=server.user, variable=PASSWORD)


def _away(document: SetDocument) -> SetDocument:
    """The same set, whose member does not answer."""
    return replace(document, members=(replace(document.members[0], port=1),))


def _equal(session: MySqlSession, collation: str) -> list[str]:
    """The names that the source calls equal to the literal."""
    select = "SELECT {} = 'straße' COLLATE {}"
    results = (session.query(select.format(string(name), collation)) for name in NAMES)
    return [name for name, ((one,),) in zip(NAMES, results, strict=True) if text_of(one) == "1"]


def _people(session: MySqlSession, collation: str = "") -> TableSchema:
    number = read_collations(session)[collation or _collation(session)]
    encoding = TextEncoding("utf8mb4", number)
    name = Column("name", ColumnType(TypeCode.VARCHAR, 80, text=encoding), nullable=True)
    return table("views_texts", "people", integer("id"), uuid("u"), name)


def _written(people: TableSchema, bootstrap: str) -> TopicWriter:
    stream = RecordStream()
    stream.fence()
    writer = TopicWriter(bootstrap, stream)
    _insert(writer, people, 0)
    return writer


def _insert(writer: TopicWriter, people: TableSchema, first: int) -> None:
    for number, name in enumerate(NAMES, first):
        writer.stream.insert(people, {"id": number, "u": bytes(16), "name": name})
        writer.stream.commit()
    writer.publish()


def _names(task: PublishTask, name: str = "people") -> list[str]:
    records = published(task, [f"{task.name}.views_texts.{name}"])
    return [record.value["name"] for record in records]


def test_source_decides_which_texts_a_condition_admits(
    session: MySqlSession, document: SetDocument, kafka: KafkaServer
) -> None:
    """The weights are stored: while the source is away, the task continues with them."""
    people = _people(session)
    writer = _written(people, kafka.bootstrap)
    task = publish_task(writer, view=View((RULE,)), format=FormatOptions.of(FormatName.JSON))
    equal = _equal(session, _collation(session))
    assert 1 < len(equal) < len(NAMES)
    source = OneSource(document)
    publisher = LocalPublisher(documents=source)
    answered(lambda: publisher.run(task), Retryable)
    assert _names(task) == equal
    assert source.asked > 0
    source.document = _away(document)
    _insert(writer, people, len(NAMES))
    answered(lambda: publisher.run(task), Retryable)
    assert _names(task) == equal * 2
    other = replace(task, view=View((replace(RULE, where="name = 'strasse'"),)))
    with pytest.raises(Retryable, match="MR-"):
        publisher.run(other)


def test_table_of_another_collation_waits_for_the_next_start(
    session: MySqlSession, document: SetDocument, kafka: KafkaServer
) -> None:
    """The added weights also serve the row that stopped the task, and are no change of its document."""
    people = _people(session)
    writer = _written(people, kafka.bootstrap)
    task = publish_task(writer, view=View((RULE,)), format=FormatOptions.of(FormatName.JSON))
    source = OneSource(document)
    publisher = LocalPublisher(documents=source)
    answered(lambda: publisher.run(task), Retryable)
    late = replace(_people(session, LATE), table="late")
    _insert(writer, late, 0)
    source.document = _away(document)
    with pytest.raises(Fatal, match="MR-5201"):
        answered(lambda: publisher.run(task), Retryable)
    source.document = document
    answered(lambda: publisher.run(task), Retryable)
    assert _names(task, "late") == _equal(session, LATE)
    assert _names(task) == _equal(session, _collation(session))


def test_check_reads_the_weights_and_finds_uuids(
    session: MySqlSession, document: SetDocument, kafka: KafkaServer
) -> None:
    """BINARY(16) of MySQL is no UUID. Conditions on numbers ask no source."""
    people = _people(session)
    task = publish_task(_written(people, kafka.bootstrap), view=View((RULE,)))
    source = OneSource(document)

    def problems(where: str) -> list[str]:
        view = View((replace(RULE, where=where),))
        outputs = compared_with_source(
            replace(task, view=view), (people,), lambda: source.set_document("texts")
        )
        return [problem.message for problem in outputs.problems]

    assert problems("id = 1") == []
    assert source.asked == 0
    assert problems("name = 'straße' AND u IS NULL") == []
    found = problems(f"u = x'{bytes(16).hex()}'")
    wanted = "tables[0].where: found u of type UUID in views_texts.people, wanted another column"
    assert found == ([] if session.flavour is Flavour.MYSQL else [wanted])
    (weights,) = read_source_texts(task.view, (people,), document).weights
    assert weights.literals == ("straße",)
    (problem,) = problems("name < 'a'")
    assert "wanted =, <> or IN" in problem


def test_start_refuses_a_condition_on_a_uuid(
    session: MySqlSession, document: SetDocument, kafka: KafkaServer
) -> None:
    """A task that was created while the source was away, or before the table. An integer's CRC32 is none."""
    people = _people(session)
    rule = TableRule("views_texts.*", where="crc32(u) % 2 = 1 OR crc32(id) % 1 = 0")
    writer = _written(people, kafka.bootstrap)
    task = publish_task(writer, view=View((rule,)), format=FormatOptions.of(FormatName.JSON))
    source = OneSource(document)
    publisher = LocalPublisher(documents=source)
    if session.flavour is Flavour.MARIADB:
        with pytest.raises(Fatal, match="found u of type UUID"):
            answered(lambda: publisher.run(task), Retryable)
        session.run(b"ALTER TABLE views_texts.people MODIFY u BINARY(16) NOT NULL")
    answered(lambda: publisher.run(task), Retryable)
    assert source.asked > 0
    assert _names(task) == list(NAMES)
