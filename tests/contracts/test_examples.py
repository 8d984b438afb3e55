"""Examples are short and pin exact versions; the pages list exactly the clients that are tested."""

import re
from pathlib import Path

import pytest

from tests.kit.clients.catalogue import CLIENTS, PROGRAMS
from tests.kit.clients.examples import example_programs, program_lines
from tests.kit.clients.manifests import versions_of
from tests.kit.clients.program import EXAMPLES, ExampleProgram
from tests.kit.debezium import avro_converter
from tests.kit.paths import ROOT
from tests.kit.registry_clients import apicurio
from tests.kit.registry_clients.programs import PROGRAMS as ASKING

LINES_MAX = 60
OTHERS = {"lakehouse"}  # no client of the table
EXAMPLE_PROGRAMS = [program for program in PROGRAMS if program.folder.is_relative_to(EXAMPLES)]
each_program = pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.name)
REGISTRY_MANIFESTS = {
    "python": "requirements.txt",
    "node": "package.json",
    "go": "go.mod",
    "rust": "Cargo.toml",
}
_ROW = re.compile(r"^\| (.*) \|$", re.MULTILINE)
_OURS = re.compile(
    r"^\s*(?:import|from) (?:millrace|schemas|drivers|registry|zk|producer|consumer)\b",
    re.MULTILINE,
)


def test_each_example_has_at_most_sixty_lines() -> None:
    """Without blank lines, comments and imports. Other examples have their own tests."""
    lines = {
        str(path.relative_to(EXAMPLES)): program_lines(path)
        for path in example_programs()
        if path.relative_to(EXAMPLES).parts[0] not in OTHERS
    }
    assert lines
    assert {path: count for path, count in lines.items() if count > LINES_MAX} == {}


def test_examples_explain_themselves_and_import_nothing_of_millrace() -> None:
    """The first lines show what it does and how to run it."""
    for path in example_programs():
        text = path.read_text()
        assert text.startswith(('"""', "#", "//", "/*")), path
        assert not _OURS.search(text), path


def test_each_example_is_a_client_of_the_table() -> None:
    """An example that no test runs does not stay right."""
    folders = {path.name for path in EXAMPLES.iterdir() if path.is_dir()}
    assert folders - OTHERS == {program.folder.name for program in EXAMPLE_PROGRAMS}


@pytest.mark.parametrize(
    "output", ["target/Generated.java", "node_modules/a/index.js", ".venv/a.py"]
)
def test_build_in_a_checkout_changes_no_example(output: str, tmp_path: Path) -> None:
    """A reader follows the README in a clone: what the build leaves is neither counted nor copied."""
    for name in ("main.rs", output):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("")
    assert list(example_programs(tmp_path)) == [tmp_path / "main.rs"]


@each_program
def test_manifest_pins_exact_versions(program: ExampleProgram) -> None:
    """A lock file is not needed, which would name the host of a package registry."""
    assert versions_of(EXAMPLES / program.manifest)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("requirements.txt", "chdb>=4.4.0\n"),
        ("package.json", '{"dependencies": {"kafkajs": "^2.2.4"}}'),
        ("Cargo.toml", '[dependencies]\nrdkafka = "*"\n'),
        ("go.mod", "module subscriber\n"),
    ],
)
def test_loose_versions_are_refused(name: str, text: str, tmp_path: Path) -> None:
    """A range would make another program each month."""
    manifest = tmp_path / name
    manifest.write_text(text)
    with pytest.raises(ValueError, match="exact version"):
        versions_of(manifest)


def test_page_lists_the_tested_clients_with_their_versions() -> None:
    """The first three columns; the others are for the reader."""
    page = (ROOT / "docs/subscribers.md").read_text().partition("\n## Clients\n")[2]
    rows = _ROW.findall(page.partition("\n## ")[0])[1:]
    assert {tuple(row.split(" | ")[:3]) for row in rows} == {
        (client.name, client.versions(), f"`{client.format.value}`") for client in CLIENTS
    }


def test_page_has_the_versions_of_registries_and_their_clients() -> None:
    """Those of the programs, and of Apicurio's jars."""
    page = (ROOT / "docs/subscribers.md").read_text().partition("\n## Registries\n")[2]
    section = page.partition("\n## ")[0]
    manifests = [
        *(each.program.folder / REGISTRY_MANIFESTS[each.program.folder.name] for each in ASKING),
        apicurio.IVY_FILE,
        avro_converter.IVY_FILE,
    ]
    for manifest in manifests:
        for name, version in versions_of(manifest).items():
            assert f"{name} {version}" in section


def test_readme_lists_every_example() -> None:
    """A row for each client that is an example, with its folder and format."""
    readme = (EXAMPLES / "README.md").read_text()
    for program in EXAMPLE_PROGRAMS:
        name = re.escape(program.folder.name)
        row = rf"^\| \[{name}\]\({name}/\) \|.*`{program.format.value}`"
        assert re.search(row, readme, re.MULTILINE), program.name
