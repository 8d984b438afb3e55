"""A schema by its id from a registry: the fallback for a record whose schema the topic did not show."""

from collections.abc import Callable

from millrace.errors import Fatal, Retryable
from registry.client import RegistryClient


def look_up_at(address: str) -> Callable[[int], str]:
    """A look-up at ``address``; "" has nothing. MR-5033, Retryable while the registry is away."""

    def look_up(schema_id: int) -> str:
        if not address:
            raise Fatal(
                "MR-5033",
                f"no schema of id {schema_id}, and no registry to ask",
                schema_id=schema_id,
            )
        try:
            return RegistryClient(address).schema_by_id(schema_id)
        except Retryable as away:
            raise Retryable("MR-5033", away.message, schema_id=schema_id) from away
        except Fatal as refused:
            raise Fatal("MR-5033", refused.message, schema_id=schema_id) from refused

    return look_up
