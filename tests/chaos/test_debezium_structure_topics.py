"""Debezium's topic of schema changes and its heartbeats beside Millrace's, about the same binlog."""

from pathlib import Path

import pytest

from millrace.schemas.documents import TableFilter
from millrace.schemas.gtid import Flavour
from tests.fixtures.servers import NewServer
from tests.kit.binlog.session import session
from tests.kit.capture.converter import Conversion, FileReader
from tests.kit.debezium.avro_converter import schema_store
from tests.kit.debezium.comparison import Side
from tests.kit.debezium.connectors import Variant, debezium_records, patient_broker, topic_records
from tests.kit.debezium.expected_structures import EXPECTED
from tests.kit.debezium.published import Publisher
from tests.kit.debezium.script import STORY, story_script
from tests.kit.debezium.structure_topics import compare_changes, compare_heartbeats, shown
from tests.kit.debezium.whole_way import CopiedTopic
from tests.kit.side_by_side import judge

FIELDS_MIN = 3000
HEARTBEATS = "__debezium-heartbeat."
VARIANT = Variant(
    "structures",
    {
        "include.schema.changes": "true",
        "heartbeat.interval.ms": "200",
        "transforms.together.regex": f"(?!{HEARTBEATS}).*",
    },
    has_schemas=True,
)


@pytest.mark.usefixtures("trusting")
@pytest.mark.parametrize("flavour", [Flavour.MYSQL, Flavour.MARIADB], ids=str)
def test_schema_changes_are_debeziums_but_for_the_list(
    flavour: Flavour, new_server: NewServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The list of ``tests/kit/debezium/expected_structures.py`` is exact in both directions."""
    server = new_server(flavour)
    with patient_broker(tmp_path) as kafka, session(server) as cursor, schema_store() as store:

        def run() -> None:
            cursor.execute(f"CREATE DATABASE {STORY} CHARACTER SET utf8mb4")
            for statement in story_script(flavour):
                cursor.execute(statement)

        theirs = debezium_records(
            server,
            kafka.bootstrap,
            tmp_path,
            run,
            databases=(STORY,),
            store=store,
            variants=(VARIANT,),
        )[VARIANT.name]
        their_beats = topic_records(kafka.bootstrap, HEARTBEATS + VARIANT.name, is_exact=True)
        conversion = Conversion(
            FileReader.of_server(server.binlog_dir),
            flavour=flavour,
            filter=TableFilter(include=(f"{STORY}.*",)),
        )
        publisher = Publisher(CopiedTopic.of(conversion, kafka.bootstrap), "")
        ours = publisher.records(VARIANT)
        parse = VARIANT.parse(store.schema)
        result = compare_changes(Side(theirs, parse), Side(ours, parse), (STORY,))
        own_beats = [record for record in ours if record.topic == f"{VARIANT.name}.heartbeat"]
        result.merge(compare_heartbeats(Side(their_beats, parse), Side(own_beats, parse)))
    verdict = judge(result.counts, EXPECTED, flavour)
    with capsys.disabled():
        kinds = f"{len(result.counts)} kinds of differences"
        print(f"\n{flavour}: {result.records} records, {result.fields} fields compared, {kinds}")
    assert not verdict.unexpected, "\n".join(shown(result, verdict.unexpected))
    assert not verdict.gone, verdict.gone
    assert result.fields > FIELDS_MIN
