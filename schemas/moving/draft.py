"""The result of reading a configuration: documents, settings without an equal, values to fill in."""

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from millrace.schemas.documents.foreign import foreign_answer
from millrace.schemas.moving.patterns import Inexpressible, patterns_of, split_list

Plain = dict[str, object]

UNKNOWN = "no equal"
BROKERS = "KAFKA-HOST:9092"  # where the configuration has none
REGISTRY = "http://REGISTRY-HOST:8081"
NO_TABLE = "name.the_tables"  # no include list of a tool becomes "all tables"
_SECRET = re.compile(r"passw|secret|token|accesskey|jaas", re.IGNORECASE)
_ENVIRONMENT = re.compile(r"\$\{env:([A-Za-z_][A-Za-z0-9_]*)\}")
_NAME_CHARACTERS_MAX = 63


# the words of MySQL's clients; PREFERRED takes TLS if the server has it, and verifies nothing
TLS_MODES: Mapping[str, str] = MappingProxyType(
    {
        "DISABLED": "disabled",
        "PREFERRED": "require-unverified",
        "REQUIRED": "require-unverified",
        "VERIFY_CA": "verify-ca",
        "VERIFY_IDENTITY": "verify-identity",
    }
)
_COMPRESSIONS = ("gzip", "snappy", "lz4", "zstd")


@dataclass(frozen=True, slots=True)
class Left:
    """A setting that no document has, and what to do about it. The values of secrets are not kept."""

    name: str
    value: str
    answer: str


@dataclass(slots=True)
class Draft:
    """The documents in the order of their creation."""

    tool: str
    documents: list[Plain] = field(default_factory=list)
    left: list[Left] = field(default_factory=list)
    to_fill: list[str] = field(default_factory=list)


class Settings:
    """The settings of a tool as texts, without white space around them. Empty ones do not exist.

    What is not taken and not ignored is left without an equal, unless it is false.
    """

    def __init__(self, values: Mapping[str, str]) -> None:
        self._values = {name: value.strip() for name, value in values.items() if value.strip()}
        self._left: list[Left] = []
        self.to_fill: list[str] = []

    def take(self, *names: str, default: str = "") -> str:
        """The value of the first name that is set; all are taken."""
        values = [self._values.pop(name) for name in names if name in self._values]
        return values[0] if values else default

    def take_list(self, *names: str) -> list[str]:
        """The parts of a list with commas."""
        return split_list(self.take(*names))

    def matching(self, pattern: str) -> list[tuple[re.Match[str], str]]:
        """The names of all settings that match the expression as a whole."""
        matches = [(re.fullmatch(pattern, name), name) for name in self._values]
        return [(match, name) for match, name in matches if match]

    def is_left(self, *names: str) -> bool:
        """Whether a part of one of these settings was left."""
        return any(each.name in names for each in self._left)

    def leave(self, name: str, value: str, answer: str) -> None:
        """Report a setting that was taken."""
        self._left.append(left(name, value, answer))

    def ignore(self, *patterns: str) -> None:
        """Settings that need no equal; ``*`` at the end stands for the rest of the name."""
        for pattern in patterns:
            for name in list(self._values):
                if name == pattern or (pattern.endswith("*") and name.startswith(pattern[:-1])):
                    del self._values[name]

    def rest(self, answers: Mapping[str, str]) -> list[Left]:
        """All settings without an equal. ``answers``: by the beginning of the name; the longest one counts."""
        for name, value in self._values.items():
            if value == "false":
                continue
            starts = [start for start in answers if name == start or name.startswith(start)]
            answer = answers[max(starts, key=len)] if starts else foreign_answer(name)
            self._left.append(left(name, value, answer or UNKNOWN))
        self._values = {}
        return self._left


def left(name: str, value: str, answer: str) -> Left:
    """A setting without an equal; the value of a secret is not shown."""
    return Left(name, "…" if _SECRET.search(name) else value, answer)


def name_of(text: str, default: str) -> str:
    """A name for a set or task: other characters become hyphens."""
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", text).lstrip("._-")[:_NAME_CHARACTERS_MAX]
    return name or default


def password_of(text: str, name: str, settings: Settings) -> str:
    """The reference to a password. A password itself never gets into a document."""
    if match := _ENVIRONMENT.fullmatch(text):
        return f"env:{match[1]}"
    variable = re.sub(r"[^A-Za-z0-9]+", "_", name).upper() + "_PASSWORD"
    settings.to_fill.append(f"the password of the set {name}, in the variable {variable}")
    return f"env:{variable}"


def port_of(text: str) -> int | str:
    """A number, or the text, which the document's own check refuses."""
    return int(text) if text.isdigit() else text


def compression_of(text: str) -> Plain:
    """The field ``compression``, if Kafka's producer compresses."""
    return {"compression": text} if text in _COMPRESSIONS else {}


def partitions_of(text: str) -> Plain:
    """The field ``partitions``, if there is a number."""
    return {"partitions": int(text)} if text.isdigit() else {}


@dataclass(frozen=True, slots=True)
class SetTopic:
    """The fields that the tasks of one source share."""

    topic: str
    kafka: Plain
    registry: str

    def capture(self, task: str, set_name: str, fields: Plain) -> Plain:
        """The task that writes the topic."""
        return {"task": task, "kind": "capture", "set": set_name, **self._plain(), **fields}

    def reader(self, task: str, kind: str, fields: Plain) -> Plain:
        """A task that reads it: apply or publish."""
        return {"task": task, "kind": kind, **self._plain(), **fields}

    def _plain(self) -> Plain:
        return {"topic": self.topic, "kafka": self.kafka, "registry": self.registry}


def brokers_of(text: str, settings: Settings) -> Plain:
    """The field ``kafka``."""
    if not text:
        settings.to_fill.append(f"`kafka`: the brokers, instead of {BROKERS}")
    return {"bootstrap": text or BROKERS}


def registry_of(text: str, settings: Settings) -> str:
    """The field ``registry``: the URL without a path."""
    match = re.match(r"https?://[^/,@]+", text)
    if match is None:
        settings.to_fill.append(f"`registry`: its URL, instead of {REGISTRY}")
    return match[0] if match else REGISTRY


def tables_of(name: str, expressions: Iterable[str], settings: Settings) -> list[str]:
    """The patterns ``database.table`` of regular expressions; those without one are left."""
    patterns: list[str] = []
    for expression in expressions:
        try:
            new = patterns_of(expression)
        except Inexpressible:
            settings.leave(name, expression, "no pattern with * and ? says this: list the names")
            continue
        patterns += [pattern for pattern in map(_with_table, new) if pattern not in patterns]
    return patterns


def _with_table(pattern: str) -> str:
    """``.*\\..*`` and ``*`` alone mean all tables."""
    return pattern if "." in pattern else f"{pattern}.*"


def tables(include: Collection[str], exclude: Collection[str], *, is_chosen: bool) -> Plain:
    """``include`` and ``exclude``. ``is_chosen``: the tool had a list of tables, so that an empty one is not all."""
    if not include and is_chosen:
        include = [NO_TABLE]
    return {
        **({"include": list(include)} if include else {}),
        **({"exclude": list(exclude)} if exclude else {}),
    }
