"""Debezium and Millrace read the same binlog; every field of their records is equal, or its difference is expected."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from schemas.documents import TableFilter
from schemas.gtid import Flavour
from tests.fixtures.servers import NewServer
from tests.kit.binlog.session import Cursor, session
from tests.kit.capture.converter import Conversion, FileReader
from tests.kit.debezium.comparison import Result, compare
from tests.kit.debezium.connectors import VARIANTS, debezium_records, patient_broker
from tests.kit.debezium.expected import judge
from tests.kit.debezium.published import Published, SetTopic, format_options
from tests.kit.debezium.script import STORY, TYPES, column_types, story_script, types_script
from tests.kit.type_values import TypeCase, every_case

FIELDS_MIN = 1_000_000


@pytest.mark.parametrize("flavour", [Flavour.MYSQL, Flavour.MARIADB], ids=str)
def test_records_are_debeziums_but_for_the_list(
    flavour: Flavour, new_server: NewServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """All variants of the options; the list of ``tests/kit/debezium/expected.py`` is exact in both directions."""
    server = new_server(flavour)
    with patient_broker(tmp_path) as kafka, session(server) as cursor:
        cases = _cases(cursor, flavour)
        theirs = debezium_records(
            server,
            kafka.bootstrap,
            tmp_path,
            lambda: _run(cursor, flavour, cases),
            databases=(TYPES, STORY),
        )
    topic = SetTopic.of(
        Conversion(
            FileReader.of_server(server.binlog_dir),
            flavour=flavour,
            filter=TableFilter(include=(f"{TYPES}.*", f"{STORY}.*")),
        )
    )
    total = Result()
    for variant in VARIANTS:
        published = Published(format_options(variant), variant, flavour)
        result = compare(theirs[variant.name], published.records(topic), column_types(cases))
        total.merge(result)
    with capsys.disabled():
        print(
            f"\n{flavour}: {total.records} records, {total.fields} fields compared,"
            f" {len(total.counts)} kinds of differences in {total.counts.total()} fields"
        )
    verdict = judge(total.counts, flavour)
    assert not verdict.unexpected, "\n".join(
        f"{each} x{total.counts[each]}: {total.examples[each]}" for each in verdict.unexpected
    )
    assert not verdict.gone, verdict.gone
    assert total.fields > FIELDS_MIN


def _cases(cursor: Cursor, flavour: Flavour) -> Sequence[TypeCase]:
    cursor.execute("SHOW CHARACTER SET")
    return every_case(flavour, {str(row[0]) for row in cursor.fetchall()})


def _run(cursor: Cursor, flavour: Flavour, cases: Sequence[TypeCase]) -> None:
    for database in (TYPES, STORY):
        cursor.execute(f"CREATE DATABASE {database} CHARACTER SET utf8mb4")
    for statement in (*types_script(cases), *story_script(flavour)):
        cursor.execute(statement)
