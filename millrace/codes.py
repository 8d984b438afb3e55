"""The one catalogue of error codes: what an operator may see, why, and what mends it.

A code is stable once released: its meaning never changes and its number is never given again. The branch (retry,
fenced, fatal) is not here: the class that is raised says it, because the same condition can be either.

Sections: 1xxx source, 2xxx relay, 3xxx Kafka, 4xxx coordination and documents, 5xxx apply and target,
6xxx record schema and DDL, 7xxx security, 8xxx installation and local servers, 9xxx internal.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType


@dataclass(frozen=True, slots=True)
class Code:
    """One condition. ``fix`` is a sentence that tells the operator what to do."""

    code: str
    title: str
    cause: str
    fix: str


# ---- 1xxx source --------------------------------------------------------------------------------
_SOURCE: tuple[Code, ...] = ()

# ---- 2xxx relay ---------------------------------------------------------------------------------
_RELAY: tuple[Code, ...] = ()

# ---- 3xxx Kafka: 30xx publisher, 35xx reading topics --------------------------------------------
_KAFKA: tuple[Code, ...] = ()

# ---- 4xxx coordination and documents ------------------------------------------------------------
_CONTROL: tuple[Code, ...] = ()

# ---- 5xxx apply and target ----------------------------------------------------------------------
_APPLY: tuple[Code, ...] = ()

# ---- 6xxx record schema, conversion and DDL: 60xx schemas and registry, 65xx converter ----------
_RECORD: tuple[Code, ...] = ()
_CONVERTER: tuple[Code, ...] = ()

# ---- 7xxx security ------------------------------------------------------------------------------
_SECURITY: tuple[Code, ...] = ()

# ---- 8xxx installation and local servers --------------------------------------------------------
_HOUSE: tuple[Code, ...] = (
    Code(
        "MR-8001",
        "two installations are mixed",
        "The packages of Millrace were loaded from more than one folder, so an old copy may be running.",
        "Uninstall the other copy (`pip uninstall millrace`) or start from a fresh virtual environment.",
    ),
    Code(
        "MR-8002",
        "a needed program is missing",
        "A program that can't be fetched is not installed.",
        "Install the named program with the system's package manager.",
    ),
    Code(
        "MR-8003",
        "a download failed",
        "A server could not be fetched into the cache.",
        "Check the network and run `make setup` again; what was fetched is kept.",
    ),
    Code(
        "MR-8004",
        "a local server did not start",
        "An embedded server ended or did not answer in time while it was started.",
        "Read the last lines of its log above; free memory and disk, then start again.",
    ),
    Code(
        "MR-8005",
        "a server program is not in the cache",
        "The embedded servers have not been fetched, or this flavour can't be fetched on this system.",
        "Run `make setup`; for MySQL give your own with `--mysqld PATH` or MILLRACE_MYSQLD=PATH.",
    ),
    Code(
        "MR-8006",
        "the local stack is in the way",
        "`millrace up` found a stack that runs already, or `millrace down` found none.",
        "Look with `millrace up --json`; end the running stack with `millrace down`.",
    ),
    Code(
        "MR-8007",
        "a local server refused a statement",
        "An embedded server answered the set-up of the local stack with an error or not at all.",
        "Read the server's log in the stack's folder; end the stack with `millrace down` and start again.",
    ),
)

# ---- 9xxx internal ------------------------------------------------------------------------------
_INTERNAL: tuple[Code, ...] = (
    Code(
        "MR-9001",
        "an unexpected error",
        "Something happened that no part of Millrace accounts for: a defect.",
        "Keep the log and report it; the task resumes from its last durable progress.",
    ),
    Code(
        "MR-9002",
        "an injected fault",
        "MILLRACE_FAULT asked for an error at a named fault point (tests only).",
        "Unset MILLRACE_FAULT.",
    ),
)


def _catalogue(*sections: tuple[Code, ...]) -> Mapping[str, Code]:
    """Index by code; a number given twice is a defect found at import."""
    found: dict[str, Code] = {}
    for section in sections:
        for code in section:
            if code.code in found:
                raise ValueError(f"{code.code} is declared twice")
            found[code.code] = code
    return MappingProxyType(found)


CATALOGUE: Mapping[str, Code] = _catalogue(
    _SOURCE,
    _RELAY,
    _KAFKA,
    _CONTROL,
    _APPLY,
    _RECORD,
    _CONVERTER,
    _SECURITY,
    _HOUSE,
    _INTERNAL,
)
