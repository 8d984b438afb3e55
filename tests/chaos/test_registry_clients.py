"""Real client libraries read from the built-in registry, and get an error from the registry of another installation."""

from collections.abc import Iterator
from dataclasses import replace

import pytest

from millrace.deploy.servers import KafkaServer
from tests.kit.registry_clients.asking import AskingClient, NoAnswer
from tests.kit.registry_clients.clients import CLIENTS
from tests.kit.registry_clients.line import NotingProxy
from tests.kit.registry_clients.requests import REQUESTS
from tests.kit.registry_clients.scene import TwoRegistries, two_registries

every_client = pytest.mark.parametrize("client", CLIENTS, ids=lambda client: client.name)


@pytest.fixture(scope="module")
def registries(kafka: KafkaServer) -> Iterator[TwoRegistries]:
    """The one that explains the value, and another one."""
    with two_registries(kafka) as both:
        yield both


@every_client
def test_client_reads_from_the_registry(registries: TwoRegistries, client: AskingClient) -> None:
    """The row, and the client's other answers; the requests are those that a test of `make test` repeats."""
    with NotingProxy(registries.right) as proxy:
        answers = client.ask(replace(registries.question, registry=proxy.address))
    wanted = registries.wanted()
    assert answers == {name: wanted[name] for name in answers}
    assert answers["row"] == wanted["row"]
    assert registries.requests(proxy.requests) == REQUESTS[client.name]


@every_client
def test_wrong_registry_is_an_error(registries: TwoRegistries, client: AskingClient) -> None:
    """Never another schema, though the subject exists there: the error names the ID or that nothing was found."""
    with NotingProxy(registries.wrong) as proxy, pytest.raises(NoAnswer) as error:
        client.ask(replace(registries.question, registry=proxy.address))
    number = str(registries.ids[0])
    assert number in str(error.value) or "not found" in str(error.value).lower(), error.value
    assert number in proxy.requests[-1]
