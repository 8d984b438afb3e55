"""Every mutant, by level."""

from collections.abc import Mapping, Sequence

from tests.mutants import (
    aside,
    decisions,
    documents,
    loads,
    parts,
    publisher_broker,
    publisher_model,
    relay,
    servers,
    slots,
    statements,
    target,
    target_statements,
    views,
)
from tests.mutants.mutant import Mutant

LEVELS: Mapping[str, Sequence[Mutant]] = {
    "unit": (
        *parts.MUTANTS,
        *publisher_model.MUTANTS,
        *decisions.MUTANTS,
        *loads.MUTANTS,
        *statements.MUTANTS,
        *views.MUTANTS,
        *aside.MUTANTS,
        *target_statements.MUTANTS,
        *slots.MUTANTS,
    ),
    "relay": relay.MUTANTS,
    "broker": publisher_broker.MUTANTS,
    "servers": (
        *servers.MUTANTS,
        *target.MUTANTS,
        *documents.MUTANTS,
        *views.ON_TARGETS,
        *target_statements.ON_TARGETS,
    ),
}
