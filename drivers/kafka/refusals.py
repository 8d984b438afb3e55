"""The meaning of a broker's refusal: a code for logins, certificates and each kind of right.

    name of the error at the client              code
    _AUTHENTICATION, SASL_AUTHENTICATION_FAILED  Retryable MR-7001
    _SSL                                         Retryable MR-7002
    UNSUPPORTED_SASL_MECHANISM, …                Retryable MR-7006
    …_AUTHORIZATION_FAILED                       Fatal MR-7010 to MR-7013

Clients report most refused connections as silence. So each task and command runs in ``explained``: when it fails, the
brokers are asked for the cause (``drivers.kafka.wire``), and a missing right gets the command that grants it.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import MappingProxyType

from drivers.kafka.access import KafkaAccess
from drivers.kafka.wire import find_refusal
from millrace.codes import CATALOGUE
from millrace.errors import Fatal, MillraceError, Retryable

REFUSALS: Mapping[str, tuple[str, type[MillraceError]]] = MappingProxyType(
    {
        "_AUTHENTICATION": ("MR-7001", Retryable),
        "SASL_AUTHENTICATION_FAILED": ("MR-7001", Retryable),
        "_SSL": ("MR-7002", Retryable),
        "UNSUPPORTED_SASL_MECHANISM": ("MR-7006", Retryable),
        "ILLEGAL_SASL_STATE": ("MR-7006", Retryable),
        "TOPIC_AUTHORIZATION_FAILED": ("MR-7010", Fatal),
        "TRANSACTIONAL_ID_AUTHORIZATION_FAILED": ("MR-7011", Fatal),
        "CLUSTER_AUTHORIZATION_FAILED": ("MR-7012", Fatal),
        "GROUP_AUTHORIZATION_FAILED": ("MR-7013", Fatal),
    }
)
_RIGHTS = frozenset({"MR-7010", "MR-7011", "MR-7012", "MR-7013"})
# Codes of clients and Spark that a refused connection can hide behind.
_UNCLEAR = frozenset(
    {
        "MR-3001",
        "MR-3002",
        "MR-3005",
        "MR-3006",
        "MR-3016",
        "MR-3501",
        "MR-5050",
        "MR-5052",
        "MR-6020",
        "MR-7001",
        "MR-7002",
        "MR-7006",
    }
)


def refusal_of(name: str, message: str) -> MillraceError | None:
    """The error for the client's error ``name``; None if it is no refusal."""
    code, branch = REFUSALS.get(name, ("", Fatal))
    return branch(code, message) if code else None


@contextmanager
def explained(brokers: KafkaAccess, grant: Callable[[str], str]) -> Iterator[None]:
    """Errors leave the block with the cause that the brokers give, or with ``grant(code)``, the command that helps."""
    try:
        yield
    except MillraceError as error:
        if error.code in _RIGHTS and (command := grant(error.code)):
            fix = f"{command} (In all: {CATALOGUE[error.code].fix})"
            raise type(error)(error.code, error.message, fix=fix, **error.context) from error
        if error.code in _UNCLEAR and (refusal := find_refusal(brokers)) is not None:
            raise refusal from error
        raise
