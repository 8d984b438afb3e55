"""Debezium and Millrace read the same binlog; every field of their records is equal, or its difference is expected.

Millrace's records are those that a plain consumer reads from the topics of publish tasks.
"""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from millrace.schemas.documents import TableFilter
from millrace.schemas.gtid import Flavour
from tests.fixtures.servers import NewServer
from tests.kit.binlog.session import Cursor, session
from tests.kit.capture.converter import Conversion, FileReader
from tests.kit.debezium.avro_converter import schema_store
from tests.kit.debezium.comparison import Difference, Side, compare
from tests.kit.debezium.connectors import VARIANTS, debezium_records, patient_broker
from tests.kit.debezium.expected import EXPECTED
from tests.kit.debezium.published import Publisher
from tests.kit.debezium.script import STORY, TYPES, column_types, story_script, types_script
from tests.kit.debezium.whole_way import CopiedTopic
from tests.kit.registry_process import started
from tests.kit.side_by_side import Result, judge
from tests.kit.type_values import TypeCase, every_case

FIELDS_MIN = 1_000_000
TASKS = 2  # at once: each waits most of its time, and more than a few keep the broker from creating topics


@pytest.mark.usefixtures("trusting")
@pytest.mark.parametrize("flavour", [Flavour.MYSQL, Flavour.MARIADB], ids=str)
def test_records_are_debeziums_but_for_the_list(
    flavour: Flavour, new_server: NewServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """All variants of the options; the list of ``tests/kit/debezium/expected.py`` is exact in both directions."""
    server = new_server(flavour)
    with patient_broker(tmp_path) as kafka, session(server) as cursor, schema_store() as store:
        cases = _cases(cursor, flavour)
        theirs = debezium_records(
            server,
            kafka.bootstrap,
            tmp_path,
            lambda: _run(cursor, flavour, cases),
            databases=(TYPES, STORY),
            store=store,
        )
        conversion = Conversion(
            FileReader.of_server(server.binlog_dir),
            flavour=flavour,
            filter=TableFilter(include=(f"{TYPES}.*", f"{STORY}.*")),
        )
        topic = CopiedTopic.of(conversion, kafka.bootstrap)
        with started(kafka, "schemas") as (registry, _):
            publisher = Publisher(topic, registry)
            with ThreadPoolExecutor(TASKS) as pool:
                ours = list(pool.map(publisher.records, VARIANTS))
            total = Result[Difference]()
            for variant, our_records in zip(VARIANTS, ours, strict=True):
                their = Side(theirs[variant.name], variant.parse(store.schema))
                our = Side(our_records, variant.parse(publisher.schema))
                result = compare(their, our, column_types(cases))
                with capsys.disabled():
                    print(f"\n{flavour}, {variant.name}: {_counts(result)}", end="")
                total.merge(result)
    with capsys.disabled():
        print(f"\n{flavour}: {_counts(total)}")
    verdict = judge(total.counts, EXPECTED, flavour)
    assert not verdict.unexpected, "\n".join(
        f"{each} x{total.counts[each]}: {total.examples[each]}" for each in verdict.unexpected
    )
    assert not verdict.gone, verdict.gone
    assert total.fields > FIELDS_MIN


def _counts(result: Result[Difference]) -> str:
    return (
        f"{result.records} records, {result.fields} fields compared,"
        f" {len(result.counts)} kinds of differences in {result.counts.total()} fields"
    )


def _cases(cursor: Cursor, flavour: Flavour) -> Sequence[TypeCase]:
    cursor.execute("SHOW CHARACTER SET")
    return every_case(flavour, {str(row[0]) for row in cursor.fetchall()})


def _run(cursor: Cursor, flavour: Flavour, cases: Sequence[TypeCase]) -> None:
    for database in (TYPES, STORY):
        cursor.execute(f"CREATE DATABASE {database} CHARACTER SET utf8mb4")
    for statement in (*types_script(cases, tables_first=True), *story_script(flavour)):
        cursor.execute(statement)
