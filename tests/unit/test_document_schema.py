"""The JSON Schemas of documents are published as generated and help an editor."""

import json

import pytest

from millrace import cli
from millrace.schemas.documents import plain_from_yaml
from millrace.schemas.documents.json_schema import set_schema, task_schema
from tests.kit.json_schema import accepts
from tests.kit.paths import ROOT

SHOP = "set: shop\nmembers: [{host: db1}]\nuser: millrace\npassword: env:SECRET\n"
CAPTURE = """
task: shop-capture
kind: capture
set: shop
kafka: {bootstrap: "127.0.0.1:9092"}
registry: http://127.0.0.1:8081
"""


@pytest.mark.parametrize("kind", ["set", "task"])
def test_published_json_schema_is_the_generated_one(
    kind: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """docs/schema is the output of `millrace schema`."""
    assert cli.run(["schema", kind]) == 0
    printed = capsys.readouterr().out
    assert (ROOT / "docs" / "schema" / f"{kind}.json").read_text() == printed
    assert json.loads(printed) == (set_schema() if kind == "set" else task_schema())


def test_json_schema_of_an_unknown_kind_is_a_usage_error(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The exit code is 2, and the known kinds are listed."""
    assert cli.run(["schema", "table"]) == 2
    assert "'table' is not set or task" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "is_accepted"),
    [
        (SHOP, True),
        (SHOP.replace("db1", "''"), False),
        (SHOP.replace("host: db1", "host: db1, port: 99999"), False),
        (SHOP.replace("host: db1", "hots: db1"), False),
        (SHOP.replace("env:SECRET", "hunter2"), False),
        (SHOP.replace("user: millrace\n", ""), False),
        (SHOP + "tls: perhaps\n", False),
        (SHOP + "passwort: x\n", False),
        (SHOP + "relay: always\n", True),
        (SHOP + "relay: perhaps\n", False),
        (SHOP + "relay: {mode: off, purge: {remain_gb: 0}}\n", True),
        (SHOP + "relay: {purge: {remain_gb: -1}}\n", False),
        (SHOP + "relay: {purges: {}}\n", False),
        (CAPTURE, True),
        (CAPTURE + "lanes: 4\n", False),
        (CAPTURE.replace("capture\nset", "apply\ntarget"), False),
        (CAPTURE + "include: []\n", False),
        (CAPTURE + "include: [shop.*]\n", True),
        (CAPTURE + "include: [shop]\n", False),
    ],
)
def test_editor_sees_what_the_parser_refuses(text: str, is_accepted: bool) -> None:
    """Fields that are missing, unknown, of a wrong type or out of bounds are refused."""
    plain = plain_from_yaml(text)
    assert accepts(task_schema() if "kind:" in text else set_schema(), plain) == is_accepted
