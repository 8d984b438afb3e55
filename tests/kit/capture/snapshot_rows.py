"""Rows of a snapshot beside the records that the binlog gives for the same rows."""

from millrace.deploy.servers import DatabaseServer
from millrace.producer.convert.column_program import avro_string
from millrace.producer.snapshot.chunk_read import MemberSession, ReadChunk, ReadRequest
from millrace.producer.snapshot.encoder import ReadPlace
from millrace.schemas.documents import Member
from millrace.schemas.gtid import parse_gtid_set
from millrace.schemas.record.avro_schema import SOURCE_VERSION, envelope_schema, key_schema
from millrace.schemas.record.control import Origin, RegisteredSchema
from tests.kit.capture.converter import MemoryRegistry
from tests.kit.relay.relay import login_of

ORIGIN_TASK, SET = "shop-capture", "shop"
GTIDS = {
    "mysql": "3e11fa47-71ca-11e1-9e33-c80aa9429562:7",
    "mariadb": "0-1-7",
}


def origin_of(server: DatabaseServer) -> Origin:
    """The origin of the records of ``tests.kit.capture.converter``."""
    return Origin(server.flavour, ORIGIN_TASK, SET)


def session_on(server: DatabaseServer) -> MemberSession:
    """A session that reads chunks."""
    member = Member(server.host, server.port)
    return MemberSession.open(member, login_of(server), origin_of(server), lambda: True)


def request_for(
    server: DatabaseServer, name: tuple[str, str], after: tuple[str, ...] = (), where: str = ""
) -> ReadRequest:
    """A read of the next chunk, which must see nothing in particular."""
    covered = parse_gtid_set(server.flavour, "")
    at = ReadPlace("s1", 0, GTIDS[server.flavour.value], 0)
    return ReadRequest(1, name, after, where, covered, at)


def stamped(chunk: ReadChunk, registry: MemoryRegistry) -> list[tuple[bytes, bytes]]:
    """The keys and values of all rows of a chunk, numbered from 1."""
    rows = chunk.rows
    envelope, key = envelope_schema(SET, rows.schema), key_schema(SET, rows.schema)
    assert key is not None
    made = [
        RegisteredSchema(
            schema.subject("shop"), registry(schema.subject("shop"), schema.text), schema
        )
        for schema in (envelope, key)
    ]
    buffer, bounds = rows.stamp(rows.without(()), value=made[0], key=made[1], seq=0)
    return [(buffer[a:b].tobytes(), buffer[c:d].tobytes()) for a, b, c, d in bounds.tolist()]


def head_of(value: bytes, server: DatabaseServer) -> bytes:
    """A row record up to its images, with the schema id."""
    head = b"".join(map(avro_string, (SOURCE_VERSION, server.flavour.value, ORIGIN_TASK)))
    return value[: value.rindex(head)]
