"""Looks up a schema by ID in a registry, for records whose schema the topic has not shown."""

from collections.abc import Callable

from millrace.errors import Fatal, Retryable
from registry.client import RegistryClient
from schemas.documents import Registry

_REFUSED = frozenset({"MR-4106", "MR-7007", "MR-7014", "MR-7015"})  # clearer than MR-5033


def look_up_at(registry: Registry) -> Callable[[int], str]:
    """A look-up in a registry. MR-5033: Fatal without a registry, Retryable if it does not answer. MR-70xx: refused."""

    def look_up(schema_id: int) -> str:
        if not registry.url:
            raise Fatal(
                "MR-5033",
                f"unknown schema id {schema_id}, and the task has no registry",
                schema_id=schema_id,
            )
        try:
            return RegistryClient(registry).schema_by_id(schema_id)
        except Retryable as away:
            if away.code in _REFUSED:
                raise
            raise Retryable("MR-5033", away.message, schema_id=schema_id) from away
        except Fatal as refused:
            if refused.code in _REFUSED:
                raise
            raise Fatal("MR-5033", refused.message, schema_id=schema_id) from refused

    return look_up
