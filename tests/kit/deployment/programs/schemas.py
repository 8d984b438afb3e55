"""Writes the strict schemas of Kubernetes into ./schemas, each without references to other files."""

import json
from pathlib import Path
from typing import Any

import kubernetes_validate

VERSION = "v1.36.0-local-strict"
KINDS = (
    "configmap-v1",
    "deployment-apps-v1",
    "networkpolicy-networking-v1",
    "poddisruptionbudget-policy-v1",
    "service-v1",
    "serviceaccount-v1",
    "statefulset-apps-v1",
)
folder = Path(kubernetes_validate.__file__).parent / "kubernetes-json-schema" / VERSION
definitions: Any = json.loads((folder / "_definitions.json").read_text())["$defs"]


def resolved(node: Any) -> Any:
    """The node with what it refers to in place."""
    if isinstance(node, list):
        return [resolved(item) for item in node]
    if not isinstance(node, dict):
        return node
    if "$ref" in node:
        return resolved(definitions[node["$ref"].rpartition("/")[2]])
    return {name: resolved(value) for name, value in node.items()}


Path("schemas").mkdir(exist_ok=True)
for kind in KINDS:
    text = json.dumps(resolved(json.loads((folder / f"{kind}.json").read_text())))
    Path("schemas", f"{kind}.json").write_text(text)
