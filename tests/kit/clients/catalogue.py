"""The clients of the table in ``docs/subscribers.md``."""

from collections.abc import Sequence

from schemas.view.format_options import FormatName
from tests.kit.clients.client import Client
from tests.kit.clients.program import ExampleProgram, python_program

PROGRAMS: Sequence[ExampleProgram] = (
    python_program("Python: confluent-kafka", "python", FormatName.AVRO),
)
CLIENTS: Sequence[Client] = (*PROGRAMS,)
