"""Two registries with schemas of the same subjects, and a value that only the first one explains."""

import json
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from uuid import uuid4

from millrace.deploy.servers import KafkaServer
from millrace.registry.client import RegistryClient
from millrace.schemas.documents import Registry
from millrace.schemas.record.avro_codec import encode
from millrace.schemas.record.framing import frame
from tests.kit.registry_clients.asking import Answers, Question
from tests.kit.registry_process import started

TOPIC = "public.shop.orders"
SUBJECT = f"{TOPIC}-value"
ROW = {"id": 7, "note": "ü"}


def _schema(name: str, *columns: str) -> str:
    note = {"name": "note", "type": ["null", "string"], "default": None}
    others = [{"name": column, "type": "long"} for column in columns]
    fields = [{"name": "id", "type": "long"}, note, *others]
    return json.dumps({"type": "record", "name": name, "namespace": "shop", "fields": fields})


OURS: Sequence[str] = (_schema("Orders"), _schema("Orders", "amount"))
"""The versions of the subject."""
THEIRS: Sequence[str] = (_schema("Parcels"), _schema("Parcels", "weight"))


@dataclass(frozen=True, slots=True)
class TwoRegistries:
    """``ids``: of the subject's versions in the first registry."""

    right: str
    wrong: str
    ids: Sequence[int]

    @property
    def question(self) -> Question:
        """To the right one."""
        return Question(self.right, TOPIC, frame(self.ids[0], encode(OURS[0], ROW)))

    def wanted(self) -> Answers:
        """All that a client may answer."""
        return {
            "row": ROW,
            "schema": json.loads(OURS[0]),
            "id": self.ids[0],
            "first": self.ids[0],
            "latest": self.ids[1],
            "versions": [1, 2],
            "subjects": [f"{TOPIC}-key", SUBJECT],
            "users": [SUBJECT],
            "types": ["AVRO"],
            "compatible": True,
            "level": "NONE",
        }

    def requests(self, seen: Sequence[str]) -> tuple[str, ...]:
        """Requests without what differs between runs."""
        number = str(self.ids[0])
        names = {SUBJECT: "SUBJECT", TOPIC: "TOPIC", number: "ID"}
        for name, sign in names.items():
            seen = [each.replace(name, sign) for each in seen]
        return tuple(seen)


@contextmanager
def two_registries(kafka: KafkaServer) -> Iterator[TwoRegistries]:
    """Processes that end with the block."""
    with ExitStack() as stack:
        right, wrong = (
            stack.enter_context(started(kafka, f"schemas-{uuid4().hex[:8]}"))[0] for _ in range(2)
        )
        ids = register(right, OURS)
        register(wrong, THEIRS)
        yield TwoRegistries(right, wrong, ids)


def register(address: str, schemas: Sequence[str], topic: str = TOPIC) -> Sequence[int]:
    """Register them as the topic's values, and one for its keys; the IDs of the values."""
    client = RegistryClient(Registry(address))
    client.register(f"{topic}-key", '"long"')
    return [client.register(f"{topic}-value", schema) for schema in schemas]
