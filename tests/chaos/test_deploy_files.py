"""Images, compose file, chart and rules pass the tools of their own projects. Needs Go, and Debian for promtool."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from millrace.http import PORTS
from tests.kit.deployment.command_lines import values_of
from tests.kit.deployment.tools import accepts, prepare, tool
from tests.kit.deployment.variables import documented_variables
from tests.kit.paths import ROOT

DEPLOY = ROOT / "deploy"
CHART = DEPLOY / "helm/millrace"
YAMLLINT = ROOT / "tests/kit/deployment/yamllint.yaml"
KUBERNETES = "1.36.0"  # of the schemas
NEEDED = ("--set", "zookeeper.hosts=zk:2181,kafka.bootstrap=kafka:9092")
VALUES: dict[str, tuple[str, ...]] = {
    "least": (),
    "everything": (
        "--set",
        "secretName=millrace,podMonitor.enabled=true,prometheusRule.enabled=true,dashboards.enabled=true,"
        "networkPolicy.enabled=true,networkPolicy.metricsFrom[0].podSelector.matchLabels.app=prometheus,apply.replicas=2,"
        "registry.token=registry-token,registry.tlsSecretName=registry-tls,worker.persistence.storageClassName=fast,"
        "worker.args[0]=--label=zone=a,worker.args[1]=--capacity=20,apply.args[0]=--conf=spark.driver.memory=1g,"
        "extraEnv[0].name=MILLRACE_ZOOKEEPER_TLS,extraEnv[0].value=verify-identity,"
        "nodeSelector.disk=ssd,imagePullSecrets[0].name=pull,priorityClassName=high,podAnnotations.a=b,podLabels.c=d",
    ),
    "brokers with a login": (
        "--set",
        "kafka.bootstrap=,kafka.config=kafka.yaml,secretName=millrace",
    ),
    "no registry, no apply": (
        "--set",
        "registry.enabled=false,apply.enabled=false,worker.replicas=1",
    ),
}
each_choice = pytest.mark.parametrize("choice", VALUES)
NO_CORE_SCHEMA = "PodMonitor,PrometheusRule"  # of the Prometheus operator


@pytest.fixture(scope="module", autouse=True)
def _tools() -> None:
    prepare()


def test_dockerfile_passes_hadolint() -> None:
    """Also its shell, by ShellCheck's rules."""
    assert accepts("hadolint", str(DEPLOY / "images/Dockerfile")) == ""


def test_yaml_passes_yamllint() -> None:
    """Every file but the chart's templates, which are no YAML."""
    files = [
        str(path)
        for path in DEPLOY.rglob("*.y*ml")
        if path.parent.name != "templates" and not path.is_relative_to(DEPLOY / "bench")
    ]
    assert len(files) >= 10
    assert accepts("yamllint", "--strict", "-c", str(YAMLLINT), *files) == ""


def test_compose_file_is_loaded() -> None:
    """By the library of `docker compose`, with every profile; an unknown key is refused."""
    path = DEPLOY / "compose/compose.yaml"
    accepts("check-compose", str(path), "demo", "cli")


def test_wrong_compose_file_is_refused(tmp_path: Path) -> None:
    """The check above can fail."""
    wrong = tmp_path / "compose.yaml"
    wrong.write_text((DEPLOY / "compose/compose.yaml").read_text().replace("restart:", "restarts:"))
    assert tool("check-compose", str(wrong)).code == 1


def test_prometheus_accepts_configuration_and_rules() -> None:
    """The rules are those that the configuration names."""
    output = accepts("promtool", "check", "config", str(DEPLOY / "prometheus/prometheus.yml"))
    assert "rules found" in output


def test_chart_passes_helms_lint() -> None:
    """Warnings are errors."""
    accepts("helm", "lint", "--strict", str(CHART), *NEEDED)


def _rendered(choice: str) -> str:
    command = ("template", "shop", str(CHART), "--kube-version", KUBERNETES, *NEEDED)
    return accepts("helm", *command, *VALUES[choice])


@each_choice
def test_rendered_chart_passes_kubeconform(choice: str, tmp_path: Path) -> None:
    """Strict: an unknown field is an error. Kinds of the Prometheus operator have no schema here."""
    path = tmp_path / "rendered.yaml"
    path.write_text(_rendered(choice))
    options = ("-strict", "-summary", "-kubernetes-version", KUBERNETES, "-skip", NO_CORE_SCHEMA)
    schemas = ("-schema-location", "schemas/{{.ResourceKind}}{{.KindSuffix}}.json")
    assert "Invalid: 0, Errors: 0" in accepts("kubeconform", *options, *schemas, str(path))
    path.write_text(path.read_text().replace("fsGroup:", "fsGroups:"))
    assert tool("kubeconform", *options, *schemas, str(path)).code == 1  # the check can fail


def _objects(choice: str) -> Iterator[dict[str, Any]]:
    yield from filter(None, yaml.safe_load_all(_rendered(choice)))


def _pods(choice: str) -> Iterator[dict[str, Any]]:
    for found in _objects(choice):
        if found["kind"] in ("Deployment", "StatefulSet"):
            yield found["spec"]["template"]


@each_choice
def test_pods_run_commands_that_exist(choice: str) -> None:
    """With variables that exist; probes and scrapes ask the port of the command, and every mount has a volume."""
    for pod in _pods(choice):
        (container,) = pod["spec"]["containers"]
        values_of(container["args"])
        environment = {variable["name"]: variable.get("value") for variable in container["env"]}
        assert environment.keys() - documented_variables() == {"POD_NAME"}
        port = PORTS[f"millrace {container['args'][0]}"]
        assert environment["MILLRACE_HTTP"] == f"0.0.0.0:{port}"
        ports = {each["name"]: each["containerPort"] for each in container["ports"]}
        assert ports["metrics"] == port
        probes = (container["livenessProbe"], container["readinessProbe"])
        assert {probe["httpGet"]["port"] for probe in probes} == {"metrics"}
        mounts = {mount["name"] for mount in container["volumeMounts"]}
        assert mounts - {volume["name"] for volume in pod["spec"]["volumes"]} <= {"relay"}


@each_choice
def test_selectors_choose_the_pods_of_their_component(choice: str) -> None:
    """Services, budgets and sets: exactly one kind of pod each."""
    pods = [pod["metadata"]["labels"] for pod in _pods(choice)]
    for found in _objects(choice):
        if found["kind"] in ("PodDisruptionBudget", "Deployment", "StatefulSet"):
            selector = found["spec"]["selector"]["matchLabels"]
        elif found["kind"] == "Service":
            selector = found["spec"]["selector"]
        else:
            continue
        assert [selector.items() <= labels.items() for labels in pods].count(True) == 1


def test_charts_rules_are_the_alerts(tmp_path: Path) -> None:
    """promtool accepts what the chart made of the file."""
    (rule,) = [found for found in _objects("everything") if found["kind"] == "PrometheusRule"]
    path = tmp_path / "rules.yml"
    path.write_text(yaml.safe_dump(rule["spec"]))
    accepts("promtool", "check", "rules", str(path))
    assert rule["spec"] == yaml.safe_load((DEPLOY / "prometheus/alerts.yml").read_text())


@pytest.mark.parametrize(
    "wrong",
    ["worker.replica=3", "zookeeper.hosts=", "log=xml", "apply.master=yarn", "kafka.bootstrap="],
)
def test_wrong_value_is_refused(wrong: str) -> None:
    """A misspelled name, too, before anything reaches a cluster."""
    run = tool(
        "helm",
        "template",
        "shop",
        str(CHART),
        "--kube-version",
        KUBERNETES,
        *NEEDED,
        "--set",
        wrong,
    )
    assert run.code == 1
