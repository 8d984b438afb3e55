"""Spark keeps Delta and Iceberg tables from a publish task's topics, exactly once, over kills and lost checkpoints."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from millrace.schemas.gtid import Flavour
from tests.fixtures.servers import NewServer
from tests.kit.binlog.session import logged
from tests.kit.debezium.connectors import patient_broker
from tests.kit.lakehouse.program import IVY_FILE, PROGRAM, PROPERTIES, Lake, Lakehouse, kill
from tests.kit.lakehouse.source import LINES, ORDERS, SOURCE, TABLES, ChangingSource, text_of
from tests.kit.waiting import eventually

SEED = 26
REST_MAX = 20_000  # at the end: a slow machine has written many meanwhile
ROWS_MAX = 150  # in a micro-batch, so that a portion is several
BATCH_S = 1800.0
SPARK_FAULT = 'because the return value of "scala.Option.get()" is null'
LOST = 3  # before this start, the checkpoint is lost
GUARD = "WHEN MATCHED AND (r.mr_seq, r.mr_part) > (t.mr_seq, t.mr_part) THEN"
NO_GUARD = "WHEN MATCHED THEN"
# what a kill waits for: Spark has planned a batch, a file is written, one of two tables is committed, a batch has ended
MOMENTS = ("planned", "file", "commit", "ended", "commit")
FLAVOURS = {Lake.DELTA: Flavour.MARIADB, Lake.ICEBERG: Flavour.MYSQL}


@pytest.mark.usefixtures("trusting")
@pytest.mark.parametrize("lake", list(Lake), ids=str)
def test_killed_spark_keeps_tables_equal(lake: Lake, new_server: NewServer, tmp_path: Path) -> None:
    """Kills inside and between micro-batches, and a lost checkpoint; without the guard, it would take rows back."""
    random = Random(f"{SEED} {lake}")
    with scene(lake, new_server, tmp_path) as (lakehouse, source):
        task = source.create()
        source.change(task)
        with source.changing(task):
            for number, moment in enumerate(random.sample(MOMENTS, len(MOMENTS))):
                if number == LOST:
                    shutil.rmtree(lakehouse.checkpoint)
                kill_at(lakehouse, moment, random)
        run_to_end(lakehouse)
        assert_equal(lakehouse, source)
        read_beginning_again(lakehouse)
        assert_equal(lakehouse, source)
        read_beginning_again(unguarded(lakehouse))
        with pytest.raises(AssertionError, match=r"latest\.shop\."):
            assert_equal(lakehouse, source)


def test_documented_packages_are_those_that_run() -> None:
    """The properties of the program and the Ivy file name the same versions."""
    text = PROPERTIES.read_text()
    for line in IVY_FILE.read_text().splitlines():
        words = line.split('"')
        if words[0].strip().startswith("<dependency "):
            assert f"{words[1]}:{words[3]}:{words[5]}" in text


@contextmanager
def scene(
    lake: Lake, new_server: NewServer, folder: Path
) -> Iterator[tuple[Lakehouse, ChangingSource]]:
    """Empty tables, and a source without changes."""
    server = new_server(FLAVOURS[lake])
    with patient_broker(folder) as kafka, logged(server, SOURCE) as session:
        yield (
            Lakehouse(lake, kafka.bootstrap, folder / "lake", TABLES),
            ChangingSource(session, kafka.bootstrap, Random(SEED)),
        )


def kill_at(lakehouse: Lakehouse, moment: str, random: Random) -> None:
    """Start the program and kill it when ``moment`` has come for the first, second or third time."""
    topic = random.choice((ORDERS, LINES))

    def count() -> int:
        match moment:
            case "planned":
                return lakehouse.planned()
            case "ended":
                return lakehouse.ended()
            case "commit":
                return lakehouse.commits(topic)
        return lakehouse.files(topic)

    wanted = count() + random.randint(1, 3)
    process = lakehouse.start(rows_max=ROWS_MAX)
    try:
        eventually(
            lambda: count() >= wanted or process.poll() is not None,
            timeout_s=BATCH_S,
            what=f"{moment} of {topic}: {lakehouse.log_end()}",
        )
        if process.poll() is not None:  # Spark 4.1.1 ends once after a batch that it repeats
            assert SPARK_FAULT in lakehouse.log_end(), lakehouse.log_end()
            process = lakehouse.start(rows_max=ROWS_MAX)
            eventually(lambda: count() >= wanted, timeout_s=BATCH_S, what=f"{moment} of {topic}")
    finally:
        kill(process)


def run_to_end(lakehouse: Lakehouse) -> None:
    """Read all that the topics have."""
    process = lakehouse.start("once", rows_max=REST_MAX)
    try:
        if process.wait(BATCH_S) != 0 and SPARK_FAULT in lakehouse.log_end():
            process = lakehouse.start("once", rows_max=REST_MAX)
        assert process.wait(BATCH_S) == 0, lakehouse.log_end()
    finally:
        kill(process)


def unguarded(lakehouse: Lakehouse) -> Lakehouse:
    """The same tables with a program that takes any record for a later one."""
    program = lakehouse.folder / "unguarded.py"
    text = PROGRAM.read_text()
    assert text.count(GUARD) == 1
    program.write_text(text.replace(GUARD, NO_GUARD))
    return replace(lakehouse, program=program)


def read_beginning_again(lakehouse: Lakehouse) -> None:
    """Without its checkpoint, the program reads the first records again and is killed before it reads the last."""
    shutil.rmtree(lakehouse.checkpoint)
    kill_at(lakehouse, "ended", Random(SEED))


def assert_equal(lakehouse: Lakehouse, source: ChangingSource) -> None:
    """Each reader sees the rows of the source."""
    for topic in TABLES:
        wanted = source.rows(topic)
        assert wanted, topic
        for reader in lakehouse.lake.readers:
            rows = [tuple(map(text_of, row.values())) for row in lakehouse.rows(topic, reader)]
            assert sorted(rows, key=str) == sorted(wanted, key=str), f"{topic} as {reader} reads it"
