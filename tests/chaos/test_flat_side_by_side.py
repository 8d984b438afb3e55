"""Maxwell, Canal and Millrace read the same binlog; every field is equal, or its difference is expected."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from millrace.schemas.documents import TableFilter
from millrace.schemas.gtid import Flavour
from millrace.schemas.view.format_options import FormatName, FormatOptions, KeyFormat
from tests.fixtures.servers import NewServer
from tests.kit.binlog.session import session
from tests.kit.capture.converter import Conversion, FileReader
from tests.kit.debezium.script import STORY, TYPES, column_types, story_script, types_script
from tests.kit.flat.canal import CanalFiles
from tests.kit.flat.comparison import Difference, compare
from tests.kit.flat.expected import CANAL, MAXWELL, Expected
from tests.kit.flat.jvm import Judged, judge_jvm
from tests.kit.flat.maxwell import MaxwellFiles
from tests.kit.flat.published import FlatRecords
from tests.kit.flat.set_topic import SetTopic
from tests.kit.side_by_side import Result, judge
from tests.kit.type_values import TypeCase, every_case

FIELDS_MIN = 40_000
PLAIN = FormatOptions.of(FormatName.MAXWELL_JSON)
VARIANTS = (
    PLAIN,
    replace(
        PLAIN,
        kafka_key_format=KeyFormat.ARRAY,
        output_xoffset=True,
        output_binlog_position=True,
        output_gtid_position=True,
        output_server_id=True,
        output_primary_keys=True,
        output_primary_key_columns=True,
        output_nulls=False,
    ),
)


@dataclass(frozen=True, slots=True)
class Binlog:
    """All changes of both scripts: the server's files, and Millrace's topic of them."""

    files: Sequence[Path]
    topic: SetTopic
    cases: Sequence[TypeCase]

    def compared(self, judged: Iterator[Judged], options: FormatOptions) -> Result[Difference]:
        """The records of a judge with Millrace's."""
        return compare(judged, FlatRecords(options).of(self.topic), column_types(self.cases))


def _binlog(flavour: Flavour, new_server: NewServer) -> Binlog:
    server = new_server(flavour)
    with session(server) as cursor:
        cursor.execute("SHOW CHARACTER SET")
        cases = every_case(flavour, {str(row[0]) for row in cursor.fetchall()})
        for database in (TYPES, STORY):
            cursor.execute(f"CREATE DATABASE {database} CHARACTER SET utf8mb4")
        for statement in (*types_script(cases), *story_script(flavour)):
            cursor.execute(statement)
    files = sorted(
        each for each in server.binlog_dir.glob("mysql-bin.*") if each.suffix[1:].isdigit()
    )
    conversion = Conversion(
        FileReader.of_server(server.binlog_dir),
        flavour=flavour,
        filter=TableFilter(include=(f"{TYPES}.*", f"{STORY}.*")),
    )
    return Binlog(files, SetTopic.of(conversion), cases)


def _judge(result: Result[Difference], entries: Sequence[Expected], flavour: Flavour) -> None:
    print(
        f"\n{flavour}: {result.records} records, {result.fields} fields compared,"
        f" {len(result.counts)} kinds of differences in {result.counts.total()} fields"
    )
    verdict = judge(result.counts, entries, flavour)
    assert not verdict.unexpected, "\n".join(
        f"{each} x{result.counts[each]}: {result.examples[each]}" for each in verdict.unexpected
    )
    assert not verdict.gone, verdict.gone
    assert result.fields > FIELDS_MIN


def test_records_are_maxwells_but_for_the_list(
    new_server: NewServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """With the default options and with all others, on MySQL: Maxwell 1.22 does not read MariaDB's events."""
    binlog = _binlog(Flavour.MYSQL, new_server)
    total = Result[Difference]()
    with judge_jvm("maxwell", tmp_path) as jvm:
        for options in VARIANTS:
            theirs = MaxwellFiles(jvm, options)
            total.merge(binlog.compared(theirs.records(binlog.files), options))
    with capsys.disabled():
        _judge(total, MAXWELL, Flavour.MYSQL)


@pytest.mark.parametrize("flavour", [Flavour.MYSQL, Flavour.MARIADB], ids=str)
def test_records_are_canals_but_for_the_list(
    flavour: Flavour, new_server: NewServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The list of ``tests/kit/flat/expected.py`` is exact in both directions."""
    binlog = _binlog(flavour, new_server)
    options = FormatOptions.of(FormatName.CANAL_JSON)
    with judge_jvm("canal", tmp_path) as jvm:
        result = binlog.compared(CanalFiles(jvm).records(binlog.files), options)
    with capsys.disabled():
        _judge(result, CANAL, flavour)
