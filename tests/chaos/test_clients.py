"""Clients of other projects read published topics without our help; `make clients` prints the table of them."""

import time
from collections.abc import Iterator, Mapping

import pytest

from millrace.deploy.servers import KafkaServer
from millrace.schemas.gtid import Flavour
from tests.fixtures.servers import FLAVOURS
from tests.kit.clients.catalogue import ALTERED_ERRORS, CLIENTS, ODD_ERRORS, PROGRAMS
from tests.kit.clients.client import Client
from tests.kit.clients.outcome import Outcomes, differences
from tests.kit.clients.program import ExampleProgram
from tests.kit.clients.scene import ClientScene, Servers, make_scene
from tests.kit.clients.tables import (
    ALTERED,
    ODD,
    ODD_VALUES,
    altered_script,
    big_script,
    odd_script,
    orders_script,
)

each_client = pytest.mark.parametrize("client", CLIENTS, ids=lambda client: client.name)
each_program = pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.name)


@pytest.fixture(scope="module")
def servers(kafka: KafkaServer, registry: str, tmp_path_factory: pytest.TempPathFactory) -> Servers:
    """One broker and one registry for all scenes."""
    return Servers(kafka.bootstrap, registry, tmp_path_factory.mktemp("clients"))


@pytest.fixture(scope="module")
def scenes(servers: Servers) -> Mapping[Flavour, ClientScene]:
    """One of each flavour."""
    return {
        flavour: make_scene(
            servers,
            flavour,
            str(flavour),
            (*orders_script(), *altered_script(), *odd_script()),
        )
        for flavour in FLAVOURS
    }


@pytest.fixture(scope="module")
def big(servers: Servers) -> ClientScene:
    """300,000 records."""
    return make_scene(servers, Flavour.MARIADB, "big", tuple(big_script()))


@pytest.fixture(scope="module")
def outcomes(pytestconfig: pytest.Config) -> Iterator[Outcomes]:
    """Prints the table when all clients have run."""
    outcomes = Outcomes()
    yield outcomes
    capture = pytestconfig.pluginmanager.getplugin("capturemanager")
    with capture.global_and_fixture_disabled():
        print(f"\n\n{outcomes.table()}")


@pytest.mark.parametrize("flavour", FLAVOURS, ids=str)
@each_client
def test_client_makes_the_table_of_the_source(
    client: Client,
    flavour: Flavour,
    scenes: Mapping[Flavour, ClientScene],
    outcomes: Outcomes,
) -> None:
    """Inserts, updates, deletes and changed keys of two partitions, with an aborted transaction at their ends."""
    if outcomes.can_run(client):
        scene = scenes[flavour]
        with outcomes.recorded(client):
            rows = client.rows(scene.topic(client.format))
            differing = differences(scene.wanted(client.format), rows)
        outcomes.of(client).differences += differing
        assert not differing


@each_program
def test_example_refuses_a_topic_without_one_record(
    program: ExampleProgram, scenes: Mapping[Flavour, ClientScene], outcomes: Outcomes
) -> None:
    """The exit code is 1, and no summary claims that the rows are complete."""
    if outcomes.can_run(program):
        run = program.run(scenes[FLAVOURS[0]].broken(program.format))
        assert run.code == 1, run.errors
        assert "rows\n" not in run.errors, run.errors


@each_program
def test_example_reads_awkward_types_or_fails_as_listed(
    program: ExampleProgram, scenes: Mapping[Flavour, ClientScene], outcomes: Outcomes
) -> None:
    """The largest numbers, texts of other character sets, and a NULL of each type; a program never loses the row."""
    if outcomes.can_run(program):
        run = program.run(scenes[FLAVOURS[-1]].topic(program.format, ODD))
        if error := ODD_ERRORS.get(program.name):
            assert run.code != 0
            assert error in run.errors
            outcomes.of(program).notes.append(f"awkward types: {error}")
            return
        full, nulls = sorted(run.rows(), key=lambda row: str(row["id"]))
        assert {name: str(full[name]) for name in ODD_VALUES} == ODD_VALUES
        assert {value for name, value in nulls.items() if name != "id"} == {None}


@each_program
def test_example_reads_past_alter_table_or_fails_as_listed(
    program: ExampleProgram, scenes: Mapping[Flavour, ClientScene], outcomes: Outcomes
) -> None:
    """Records of two structures, whose schemas have the same names, are mixed in a topic."""
    if outcomes.can_run(program):
        scene = scenes[FLAVOURS[0]]
        run = program.run(scene.topic(program.format, ALTERED))
        if error := ALTERED_ERRORS.get(program.name):
            assert run.code != 0
            assert error in run.errors
            outcomes.of(program).notes.append(f"after ALTER TABLE: {error}")
            return
        assert differences(scene.wanted(program.format), run.rows()) == []


@each_client
def test_client_reads_300_000_records(client: Client, big: ClientScene, outcomes: Outcomes) -> None:
    """The rate is for the reader of the table: it has no bound."""
    if outcomes.can_run(client):
        topic = big.topic(client.format)
        began_s = time.monotonic()
        with outcomes.recorded(client):
            rows = list(client.rows(topic))
        outcomes.of(client).rate = topic.records / (time.monotonic() - began_s)
        assert differences(big.wanted(client.format), rows) == []
