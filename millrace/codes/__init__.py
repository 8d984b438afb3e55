"""The one catalogue of error codes: what happened, why, and how to fix it.

A code is stable once released: its meaning never changes and its number is never reused. ``branch`` states what
happens next: the class that is raised decides it (``millrace.errors``), and a test compares the two.

One module per section: 1xxx ``source``, 2xxx ``relay``, 3xxx ``kafka``, 4xxx ``control``, 416x to 417x ``check``,
418x ``decision``, 5xxx ``apply``, 508x and 509x ``load``, 511x ``streams``, 512x ``compare``, 60xx ``record``,
65xx ``converter``, 7xxx ``security``, 8xxx ``house``, 9xxx ``internal``.
"""

from collections.abc import Mapping
from types import MappingProxyType

from millrace.codes import (
    apply,
    check,
    compare,
    control,
    converter,
    decision,
    house,
    internal,
    kafka,
    load,
    record,
    relay,
    security,
    source,
    streams,
)
from millrace.codes.code import Branch, Code

__all__ = ["CATALOGUE", "SECTIONS", "Branch", "Code"]


SECTIONS: Mapping[str, tuple[Code, ...]] = MappingProxyType(
    {
        "1xxx: reading a source set": source.CODES,
        "2xxx: the relay log": relay.CODES,
        "3xxx: Kafka": kafka.CODES,
        "4xxx: coordination and documents": control.CODES,
        "4160 to 4179: what `millrace check` finds": check.CODES,
        "4180 to 4199: decisions of an operator": decision.CODES,
        "5xxx: apply and target": apply.CODES,
        "5080 to 5099: rows that a load copies": load.CODES,
        "5110 to 5119, 4235 to 4239: loading tables later": streams.CODES,
        "5120 to 5134: comparisons and repairs": compare.CODES,
        "60xx: record schemas and the registry": record.CODES,
        "65xx: conversion": converter.CODES,
        "7xxx: security": security.CODES,
        "8xxx: installation and local servers": house.CODES,
        "9xxx: internal": internal.CODES,
    }
)


def _catalogue() -> Mapping[str, Code]:
    """Index by code; a duplicate code fails the import."""
    found: dict[str, Code] = {}
    for code in (code for section in SECTIONS.values() for code in section):
        if code.code in found:
            raise ValueError(f"{code.code} is declared twice")
        found[code.code] = code
    return MappingProxyType(found)


CATALOGUE: Mapping[str, Code] = _catalogue()
