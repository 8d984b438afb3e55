"""Looks up a schema by ID in a registry, for records whose schema the topic has not shown."""

from collections.abc import Callable

from millrace.errors import Fatal, Retryable
from registry.client import RegistryClient


def look_up_at(address: str) -> Callable[[int], str]:
    """A look-up in the registry at ``address``. MR-5033: Fatal with address "", Retryable if it does not answer."""

    def look_up(schema_id: int) -> str:
        if not address:
            raise Fatal(
                "MR-5033",
                f"unknown schema id {schema_id}, and the task has no registry",
                schema_id=schema_id,
            )
        try:
            return RegistryClient(address).schema_by_id(schema_id)
        except Retryable as away:
            raise Retryable("MR-5033", away.message, schema_id=schema_id) from away
        except Fatal as refused:
            raise Fatal("MR-5033", refused.message, schema_id=schema_id) from refused

    return look_up
