"""Checks a schema registry for `millrace check`. Apart: the registry does not need it.

It answers Confluent's API and accepts schemas. Registers nothing."""

from collections.abc import Iterator

from millrace.checks.requirement import Area, Requirement, Subject
from millrace.registry.client import RegistryClient

WANTED_MODE, WANTED_COMPATIBILITY = "READWRITE", "NONE"


def check_registry(client: RegistryClient, *, is_written: bool) -> Iterator[Requirement]:
    """The requirements of a registry. ``is_written``: a capture task registers schemas. Errors: ``registry.client``."""
    subject = Subject(Area.REGISTRY, client.address)
    level = client.setting("config", "compatibilityLevel")
    yield subject.ok("Confluent's API", "answers")
    if is_written:
        yield judge_compatibility(subject, level)
        yield judge_mode(subject, client.setting("mode", "mode"))


def judge_mode(subject: Subject, mode: str) -> Requirement:
    """MR-4167 if the registry accepts no schemas."""
    if mode != WANTED_MODE:
        return subject.fail("MR-4167", "mode", found=mode, wanted=WANTED_MODE)
    return subject.ok("mode", mode)


def judge_compatibility(subject: Subject, level: str) -> Requirement:
    """MR-4168 if the registry compares a table's new schema with the one before.

    Only the level of the whole registry is known: a subject is a table, and has none before its first schema.
    """
    if level != WANTED_COMPATIBILITY:
        return subject.warn("MR-4168", "compatibility", found=level, wanted=WANTED_COMPATIBILITY)
    return subject.ok("compatibility", level)
