"""All clients. Apart: each module has one kind."""

from collections.abc import Sequence

from tests.kit.registry_clients.apicurio import SERDES, ApicurioConverter
from tests.kit.registry_clients.asking import AskingClient
from tests.kit.registry_clients.programs import PROGRAMS

CLIENTS: Sequence[AskingClient] = (*PROGRAMS, *SERDES, ApicurioConverter())
