"""The rights that Millrace needs on Kafka, as commands and as the fix of an error."""

import pytest

from millrace.drivers.kafka.acls import (
    Grants,
    capture_acls,
    commands,
    principal_of,
    registry_acls,
    subscriber_acls,
)
from millrace.errors import Fatal, MillraceError, Retryable
from millrace.schemas.documents import Brokers, Mechanism, Sasl, SecretPlace, SecretReference

BROKERS = Brokers(
    "127.0.0.1:1",
    sasl=Sasl(Mechanism.PLAIN, SecretReference(SecretPlace.ENVIRONMENT, "A"), "Zoë B"),
)
START = "kafka-acls.sh --bootstrap-server 127.0.0.1:1 --add --allow-principal 'User:Zoë B'"


def test_rights_are_printed_by_resource() -> None:
    """One command for each resource, quoted for a shell."""
    printed = commands(
        capture_acls("shop"), principal=principal_of(BROKERS), bootstrap=BROKERS.bootstrap
    )
    assert [command.rpartition(" --operation ")[2] for command in printed] == [
        "Write --topic shop",
        "Write --transactional-id millrace/shop/0",
        *(["Describe --group millrace-publisher"] if len(printed) == 3 else []),
    ]
    assert all(command.startswith(START) for command in printed)


def test_subscriber_may_only_read() -> None:
    """A forged record is a matter of rights: subscribers get none to write."""
    operations = {acl.operation for acl in subscriber_acls("shop")}
    assert operations <= {"Read", "Describe"}


@pytest.mark.parametrize(
    ("code", "resource"),
    [("MR-7010", "--topic s"), ("MR-7011", "--transactional-id r"), ("MR-7013", "--group r")],
)
def test_missing_right_gets_the_command_that_grants_it(code: str, resource: str) -> None:
    """The error keeps its code and branch; its fix begins with the command."""
    grants = Grants(BROKERS, registry_acls("s"))
    with pytest.raises(Fatal) as raised, grants.explained():
        raise Fatal(code, "no")
    assert raised.value.fix.startswith(START)
    assert resource in raised.value.fix
    assert raised.value.code == code


def test_principal_of_a_certificate_is_left_open() -> None:
    """Brokers derive it from the certificate by rules that differ."""
    assert principal_of(Brokers("h:1")) == "User:NAME"


@pytest.mark.parametrize("code", ["MR-3001", "MR-3003", "MR-5010"])
def test_error_without_a_refusal_is_kept(code: str) -> None:
    """No broker answers here, so the first cause remains."""
    error: MillraceError = Retryable(code, "first") if code == "MR-3001" else Fatal(code, "first")
    with pytest.raises(MillraceError) as raised, Grants(Brokers("127.0.0.1:1"), ()).explained():
        raise error
    assert raised.value is error
