"""The commands of clients: registrations and dumps. Pure.

    COM_REGISTER_SLAVE    0x15  4 server id, 3 times (1 length, text) host, user, password, 2 port, 4 rank, 4 source id
    COM_BINLOG_DUMP       0x12  4 position, 2 flags, 4 server id, file name
    COM_BINLOG_DUMP_GTID  0x1E  2 flags, 4 server id, 4 length, file name, 8 position, 4 length, GTID set
                                (``schemas.gtid.binary``)

User variables add to a dump. MySQL's clients set @source_… and the older @master_…, MariaDB's only the latter:

    …_heartbeat_period, in nanoseconds     …_binlog_checksum: NONE or CRC32; absent: no dump
    @replica_uuid, @slave_uuid             @mariadb_slave_capability: 4 knows GTIDs; less: no dump
    @slave_connect_state                   MariaDB's position; the file and position of the command don't count then
"""

import re
import struct
from collections.abc import Mapping
from dataclasses import dataclass

from millrace.errors import Fatal
from millrace.producer.serve.wire import Refusal, Value
from millrace.schemas.gtid import Flavour, GtidPosition, MariadbGtidSet
from millrace.schemas.gtid.binary import decode_previous_gtids

NON_BLOCKING_FLAG = 1
ANNOTATE_FLAG = 2  # MariaDB
_GTID_CAPABILITY = 4
_NANOSECONDS = 1_000_000_000
_NUMBER = re.compile("[0-9]{1,20}")
HEARTBEAT_S_MIN = 0.001

DUMP_ERROR, STATE = 1236, "HY000"
NO_CHECKSUM_TEXT = (
    "Replica can not handle replication events with the checksum that source is configured to log"
)


@dataclass(frozen=True, slots=True)
class Registration:
    """A line of SHOW REPLICAS."""

    server_id: int
    host: str
    port: int
    uuid: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class DumpRequest:
    """``done``: the client's GTIDs; then file and position don't count. ``heartbeat_s``: 0 sends none."""

    server_id: int
    uuid: str
    done: GtidPosition | None
    file: str
    pos: int
    is_endless: bool
    has_annotations: bool
    has_checksum: bool  # of the first event
    heartbeat_s: float

    @property
    def identity(self) -> str:
        """A newer dump with the same identity ends this one; "" for clients without one."""
        return self.uuid or (str(self.server_id) if self.server_id else "")


def parse_registration(payload: bytes, uuid: str) -> Registration:
    """The body of COM_REGISTER_SLAVE."""
    try:
        (server_id,) = struct.unpack_from("<I", payload)
        texts, at = [], 4
        for _ in range(3):
            length = payload[at]
            texts.append(payload[at + 1 : at + 1 + length].decode(errors="replace"))
            at += 1 + length
        (port,) = struct.unpack_from("<H", payload, at)
    except (struct.error, IndexError):
        raise _malformed() from None
    return Registration(server_id, texts[0], port, uuid)


def parse_dump(payload: bytes, variables: Mapping[str, Value], flavour: Flavour) -> DumpRequest:
    """The body of COM_BINLOG_DUMP. ``variables``: the client's user variables, in lower case."""
    try:
        pos, flags, server_id = struct.unpack_from("<IHI", payload)
    except struct.error:
        raise _malformed() from None
    state = variables.get("slave_connect_state")
    done = None
    if state is not None and flavour is Flavour.MARIADB:
        try:
            done = MariadbGtidSet.parse(str(state))
        except Fatal as error:
            raise Refusal(DUMP_ERROR, STATE, f"@slave_connect_state: {error.message}") from error
    file = payload[10:].split(b"\0")[0].decode(errors="replace")
    return _request(server_id, flags, done, (file, pos), variables)


def parse_gtid_dump(payload: bytes, variables: Mapping[str, Value]) -> DumpRequest:
    """The body of COM_BINLOG_DUMP_GTID."""
    try:
        flags, server_id, length = struct.unpack_from("<HII", payload)
        at = 10 + length
        file = payload[10:at].decode(errors="replace")
        pos, length = struct.unpack_from("<QI", payload, at)
    except struct.error:
        raise _malformed() from None
    try:
        done = decode_previous_gtids(payload[at + 12 : at + 12 + length])
    except Fatal as error:
        raise Refusal(DUMP_ERROR, STATE, f"the GTID set is malformed: {error.message}") from error
    return _request(server_id, flags, done, (file, pos), variables)


def _request(
    server_id: int,
    flags: int,
    done: GtidPosition | None,
    place: tuple[str, int],
    variables: Mapping[str, Value],
) -> DumpRequest:
    checksum = str(_either(variables, "binlog_checksum") or "").upper()
    if checksum not in ("NONE", "CRC32"):
        raise Refusal(DUMP_ERROR, STATE, NO_CHECKSUM_TEXT)
    period = str(_either(variables, "heartbeat_period") or "0")
    heartbeat_s = int(period) / _NANOSECONDS if _NUMBER.fullmatch(period) else 0.0
    return DumpRequest(
        server_id=server_id,
        uuid=str(variables.get("replica_uuid") or variables.get("slave_uuid") or ""),
        done=done,
        file=place[0],
        pos=place[1],
        is_endless=not flags & NON_BLOCKING_FLAG,
        has_annotations=bool(flags & ANNOTATE_FLAG),
        has_checksum=checksum == "CRC32",
        heartbeat_s=max(heartbeat_s, HEARTBEAT_S_MIN) if heartbeat_s else 0.0,
    )


def check_capability(variables: Mapping[str, Value], flavour: Flavour) -> None:
    """Refuse a client that does not know MariaDB's events: a server would rewrite them for it."""
    if flavour is not Flavour.MARIADB:
        return
    capability = str(variables.get("mariadb_slave_capability") or "0")
    if not _NUMBER.fullmatch(capability) or int(capability) < _GTID_CAPABILITY:
        text = "the client does not know MariaDB's GTIDs: it must set @mariadb_slave_capability=4"
        raise Refusal(DUMP_ERROR, STATE, text)


def _either(variables: Mapping[str, Value], name: str) -> Value:
    return variables.get(f"source_{name}", variables.get(f"master_{name}"))


def _malformed() -> Refusal:
    return Refusal(1835, "HY000", "Malformed communication packet.")
