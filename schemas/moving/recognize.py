"""Which tool a configuration is of, by its contents; file names do not count."""

import json
from collections.abc import Mapping, Sequence

from millrace.errors import Fatal, MillraceError
from millrace.schemas.documents.text import plain_from_yaml
from millrace.schemas.json_input import load_json
from millrace.schemas.moving.canal import draft_of_canal
from millrace.schemas.moving.debezium import draft_of_debezium
from millrace.schemas.moving.dm import draft_of_dm
from millrace.schemas.moving.draft import Draft
from millrace.schemas.moving.maxwell import draft_of_maxwell
from millrace.schemas.moving.properties import read_properties

_SERVER = "debezium.source."
_MAXWELL = frozenset(
    {
        "producer",
        "kafka_topic",
        "filter",
        "schema_database",
        "client_id",
        "kafka.bootstrap.servers",
        "host",
    }
)
_WANTED = "a connector of Debezium, an instance of Canal, a configuration of Maxwell, or a task of DM with its sources"


def read_configuration(texts: Mapping[str, str]) -> Draft:
    """The draft of one configuration, which may be in several files. ``texts``: by the file's name.

    Fatal MR-4147 if it is of no known tool, MR-4148 if it reads another kind of database.
    """
    parts = {name: _read(name, text) for name, text in texts.items()}
    tasks = [part for part in parts.values() if "mysql-instances" in part]
    if tasks:
        return draft_of_dm(tasks[0], [part for part in parts.values() if "source-id" in part])
    values: dict[str, str] = {}
    for part in parts.values():
        values |= {key: _text(value) for key, value in _flat(part).items()}
    if any(name.startswith("canal.") for name in values):
        return draft_of_canal(values)
    if any(name in ("connector.class", "class") or name.startswith(_SERVER) for name in values):
        return draft_of_debezium(values)
    if _MAXWELL & values.keys():
        return draft_of_maxwell(values)
    names = ", ".join(texts)
    if any("source-id" in part for part in parts.values()):
        raise Fatal(
            "MR-4147", f"{names}: found a source of DM, wanted the file of its task beside it"
        )
    raise Fatal("MR-4147", f"{names}: found {_shown(list(values))}, wanted {_WANTED}")


def _read(name: str, text: str) -> dict[str, object]:
    """A file's fields: JSON, YAML or properties."""
    begin = text.lstrip("\ufeff \t\r\n")[:1]
    try:
        if begin == "{":
            plain = load_json(text)
        else:
            plain = plain_from_yaml(text, origin=name)
    except (MillraceError, ValueError):
        plain = None
    if isinstance(plain, dict):
        return plain
    return dict(read_properties(text))


def _flat(part: Mapping[str, object]) -> dict[str, object]:
    """The settings of a file: those in ``config`` or ``spec`` of a connector beside its name."""
    spec = part.get("spec")
    if isinstance(spec, dict):
        metadata = part.get("metadata")
        name = metadata.get("name", "") if isinstance(metadata, dict) else ""
        config = spec.get("config")
        own = config if isinstance(config, dict) else {}
        return {"name": name, "connector.class": spec.get("class", ""), **own}
    config = part.get("config")
    if isinstance(config, dict):
        return {"name": part.get("name", ""), **config}
    return {
        key.removeprefix(_SERVER).removeprefix("debezium."): value for key, value in part.items()
    }


def _text(value: object) -> str:
    if isinstance(value, str):
        return value
    return "" if value is None else json.dumps(value)


def _shown(names: Sequence[str]) -> str:
    return ", ".join(names[:5]) or "no setting"
