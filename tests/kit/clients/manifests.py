"""The direct dependencies of a manifest with their exact versions: name and version, in the manifest's order."""

import json
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from xml.etree import ElementTree

_GO = re.compile(r"^\s*(?:require )?([\w./-]+\.[\w./-]+) v(\S+)(?!.*// indirect)\s*(?://.*)?$")
_PINNED = re.compile(r"^([\w.-]+)(?:\[[\w,]+\])?==?([\w.+:~-]+)\*?$")
_MAVEN = "{http://maven.apache.org/POM/4.0.0}"


def versions_of(manifest: Path) -> Mapping[str, str]:
    """ValueError for a dependency without an exact version, and for a kind of manifest that is unknown."""
    text = manifest.read_text()
    versions: Mapping[str, str]
    match manifest.name:
        case "requirements.txt" | "packages.txt":
            versions = dict(map(_pinned, filter(None, text.splitlines())))
        case "package.json":
            versions = json.loads(text)["dependencies"]
        case "go.mod":
            lines = [line for line in text.splitlines() if "// indirect" not in line]
            versions = {name: version for line in lines for name, version in _GO.findall(line)}
        case "Cargo.toml":
            dependencies = tomllib.loads(text)["dependencies"]
            versions = {
                name: _exact(str(value["version"] if isinstance(value, dict) else value))
                for name, value in dependencies.items()
            }
        case "pom.xml":
            versions = _of_maven(text)
        case name if name.endswith("ivy.xml"):
            dependencies = ElementTree.fromstring(text).iter("dependency")
            versions = {each.attrib["name"]: each.attrib["rev"] for each in dependencies}
        case _:
            raise ValueError(f"unknown manifest {manifest}")
    loose = [name for name, version in versions.items() if not version[:1].isdigit()]
    if loose or not versions:
        raise ValueError(f"{manifest}: no exact version of {', '.join(loose) or 'anything'}")
    return versions


def _pinned(line: str) -> tuple[str, str]:
    match = _PINNED.match(line)
    if match is None:
        raise ValueError(f"no exact version: {line}")
    return match[1], match[2]


def _exact(version: str) -> str:
    """Cargo takes a version without "=" for a range."""
    return version.removeprefix("=") if version.startswith("=") else f"a range: {version}"


def _of_maven(text: str) -> Mapping[str, str]:
    dependencies = ElementTree.fromstring(text).iter(f"{_MAVEN}dependency")
    return {
        each.findtext(f"{_MAVEN}artifactId", ""): each.findtext(f"{_MAVEN}version", "")
        for each in dependencies
    }
