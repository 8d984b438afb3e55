"""How a connection is protected, in the words of documents."""

from dataclasses import dataclass
from enum import StrEnum


class TlsMode(StrEnum):
    """How a connection to a server is protected."""

    VERIFY_IDENTITY = "verify-identity"  # encrypted, certificate chain and host name checked
    VERIFY_CA = "verify-ca"  # encrypted, certificate chain checked
    REQUIRE_UNVERIFIED = "require-unverified"  # encrypted, but the server is not authenticated
    DISABLED = "disabled"  # plain text

    @property
    def verifies(self) -> bool:
        """Whether the server proves its identity."""
        return self in (TlsMode.VERIFY_IDENTITY, TlsMode.VERIFY_CA)


@dataclass(frozen=True, slots=True)
class Tls:
    """``ca_path`` is a PEM file on the worker; empty means the system's trust store."""

    mode: TlsMode = TlsMode.VERIFY_IDENTITY
    ca_path: str = ""
