"""Alerts, dashboards and their pages name only metrics, labels, states, codes, flags and variables that exist."""

import ast
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from millrace.cli import COMMANDS, load_command
from millrace.codes import CATALOGUE
from millrace.http import PORTS
from millrace.metrics import METRICS
from millrace.schemas.status import TaskState
from tests.kit import promql
from tests.kit.paths import ROOT
from tests.kit.sources import parsed, python_files

ALERTS_FILE = ROOT / "deploy/prometheus/alerts.yml"
DASHBOARDS = sorted((ROOT / "deploy/grafana").glob("*.json"))
PAGES = [ROOT / "docs/metrics.md", ROOT / "docs/operations.md"]
SEVERITIES = {"emergency", "critical", "warning"}
VALUES = {
    ("millrace_state", "state"): {state.value for state in TaskState},
    ("millrace_relay_bytes", "state"): {"used", "free"},
    ("millrace_load_tables", "state"): {"copied", "left"},
    ("millrace_compare_differences", "state"): {"left", "repaired"},
    ("millrace_kafka_txn_total", "result"): {"commit", "discard"},
}


def _alerts() -> list[dict[str, Any]]:
    groups = yaml.safe_load(ALERTS_FILE.read_text())["groups"]
    return [rule for group in groups for rule in group["rules"]]


def _panels() -> Iterator[tuple[str, dict[str, Any]]]:
    for path in DASHBOARDS:
        for panel in json.loads(path.read_text())["panels"]:
            yield f"{path.name}: {panel['title']}", panel


def _queries() -> list[str]:
    """Return every expression of an alert or panel, and of a dashboard's variables."""
    found = [alert["expr"] for alert in _alerts()]
    return found + [target["expr"] for _, panel in _panels() for target in panel.get("targets", ())]


ALERTS = _alerts()
QUERIES = _queries()


@pytest.mark.parametrize("query", QUERIES)
def test_query_reads_existing_metrics_and_labels(query: str) -> None:
    """Also the labels by which it groups, and the states that it selects."""
    tree = promql.parsed(query)
    promql.labels_of(tree)
    for selector in promql.selectors(tree):
        for matcher in selector.matchers.matchers:
            if "$" in matcher.value or matcher.name == "job":
                continue
            known = VALUES[(str(selector.name), matcher.name)]
            assert set(matcher.value.split("|")) <= known


@pytest.mark.parametrize(
    "query",
    [
        "millrace_no_such_metric > 1",
        'millrace_seq{table="t"}',
        "sum by (replica) (millrace_seq)",
        "millrace_seq and on (code) millrace_state",
        "rate(millrace_kafka_txn_seconds[5m])",
    ],
)
def test_query_of_something_unknown_is_found(query: str) -> None:
    """The check above can fail."""
    with pytest.raises(AssertionError):
        promql.labels_of(promql.parsed(query))


@pytest.mark.parametrize("alert", ALERTS, ids=lambda alert: str(alert["alert"]))
def test_alert_has_a_severity_and_a_section_in_operations(alert: dict[str, Any]) -> None:
    """Its texts name only labels that its result has."""
    assert alert["labels"]["severity"] in SEVERITIES
    notes = alert["annotations"]
    assert set(notes) == {"summary", "runbook"}
    assert notes["runbook"] == f"docs/operations.md#{alert['alert'].lower()}"
    labels = promql.labels_of(promql.parsed(alert["expr"]))
    assert promql.labels_in_template(notes["summary"]) <= labels | {"value"}


def test_operations_page_has_one_section_for_each_alert() -> None:
    """Symptom, check and action, with commands."""
    text = (ROOT / "docs/operations.md").read_text()
    sections = dict(
        section.split("\n", 1) for section in re.split(r"^### ", text, flags=re.MULTILINE)[1:]
    )
    assert sorted(sections) == sorted(alert["alert"] for alert in ALERTS)
    for body in sections.values():
        assert re.findall(r"\*\*(\w+)", body)[:2] == ["Symptom", "Check"]
        assert "ction.**" in body


@pytest.mark.parametrize(("title", "panel"), list(_panels()), ids=lambda value: str(value)[:40])
def test_legends_name_labels_of_their_query(title: str, panel: dict[str, Any]) -> None:
    """A wrong one shows its own text."""
    for target in panel.get("targets", ()):
        labels = promql.labels_of(promql.parsed(target["expr"]))
        assert promql.labels_in_template(target["legendFormat"]) <= labels, title


@pytest.mark.parametrize("path", DASHBOARDS, ids=lambda path: str(path.name))
def test_dashboard_uses_its_variables(path: Path) -> None:
    """Grafana asks for the data source when it imports the file. Panels do not overlap."""
    board = json.loads(path.read_text())
    variables = {variable["name"]: variable for variable in board["templating"]["list"]}
    text = json.dumps(board["panels"])
    named = set(re.findall(r"\$\{?(\w+)", text)) - {"__rate_interval"}
    assert named == set(variables)
    for variable in variables.values():
        if variable["type"] == "query":
            metric, label = re.findall(r"label_values\((\w+), (\w+)\)", variable["definition"])[0]
            assert label in promql.SERIES[metric]
    places = [panel["gridPos"] for panel in board["panels"]]
    cells = [
        (x, y)
        for place in places
        for x in range(place["x"], place["x"] + place["w"])
        for y in range(place["y"], place["y"] + place["h"])
    ]
    assert len(cells) == len(set(cells))
    assert len({panel["id"] for panel in board["panels"]}) == len(board["panels"])


def test_each_metric_is_set_by_the_product_and_shown() -> None:
    """A metric without values, or one that is shown nowhere, is no metric."""
    used = {
        str(node.value)
        for path in python_files()
        if not path.is_relative_to(ROOT / "tests")
        for node in ast.walk(parsed(path))
        if isinstance(node, ast.Constant) and str(node.value) in METRICS
    }
    assert used == METRICS.keys()
    shown = " ".join(QUERIES)
    assert [name for name in METRICS if not re.search(rf"\b{name}(_bucket)?\b", shown)] == []


def test_metrics_page_has_every_row_and_the_suggested_ports() -> None:
    """Its rows are the metrics; the ports are those of the commands."""
    page = PAGES[0].read_text()
    assert re.findall(r"^\| `(millrace_\w+)` \|", page, re.MULTILINE) == list(METRICS)
    assert [f"| `{command}` | {port} |" in page for command, port in PORTS.items()] == [True] * 5


@pytest.mark.parametrize("page", PAGES, ids=lambda path: str(path.name))
def test_page_names_what_exists(page: Path) -> None:
    """Metrics, codes, flags and variables."""
    text = page.read_text()
    assert set(re.findall(r"\bmillrace_\w+", text)) <= METRICS.keys()
    assert set(re.findall(r"MR-\d{4}", text)) <= CATALOGUE.keys()
    code = " ".join(path.read_text() for path in (ROOT / "millrace").rglob("*.py"))
    code += (ROOT / "zk/ensemble.py").read_text()
    variables = set(re.findall(r"\bMILLRACE_\w+", text))
    assert [variable for variable in variables if f'"{variable}"' not in code] == []
    flags = set(re.findall(r"`(--[a-z-]+)", text))
    assert flags <= set(_flags(*(load_command(name) for name in COMMANDS)))


def _flags(*commands: Any) -> Iterator[str]:
    for command in commands:
        yield from _flags(*getattr(command, "commands", {}).values())
        for parameter in command.params:
            yield from parameter.opts


def test_suggested_ports_are_of_commands_with_the_option() -> None:
    """The page of metrics lists them."""
    for command in PORTS:
        found: Any = load_command(command.split()[1])
        for word in command.split()[2:]:
            found = found.commands[word]
        assert "--http" in set(_flags(found))
    assert len(set(PORTS.values())) == len(PORTS)
