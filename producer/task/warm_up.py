"""Compiles the kernels in advance: runs receiver, relay log, converter and server once over a file without rows.

The machine code is cached in ``$MILLRACE_HOME`` and next to the sources. So this takes a minute once per installation
and a second afterwards. Without it, the first worker would compile while its tasks wait. ``make setup`` calls it.

The file has the two events of an empty MySQL file: a FORMAT_DESCRIPTION (version 4, server version in 50 bytes,
created, header length 19, post-header lengths, checksum algorithm 1) and an empty PREVIOUS_GTIDS.
"""

import socket
import struct
import tempfile
import threading
import zlib
from pathlib import Path

import numpy as np

from millrace.drivers.mysql.catalog import CatalogColumn, CatalogTable, UniqueKey
from millrace.drivers.mysql.table_schema import table_schema
from millrace.errors import Retryable
from millrace.machine_code import note_compiled
from millrace.producer.binlog.events import FORMAT_DESCRIPTION, PREVIOUS_GTIDS
from millrace.producer.binlog.gtid_runs import new_runs
from millrace.producer.convert.arrays import KernelArrays
from millrace.producer.convert.charset_tables import CharsetTables
from millrace.producer.convert.converter import Converter, ConverterSource
from millrace.producer.convert.kernel import program as p
from millrace.producer.relay.large_event import has_right_sum
from millrace.producer.relay.reader import RelayReader
from millrace.producer.relay.writer import RelayLog
from millrace.producer.serve.catalogue import Catalogue
from millrace.producer.serve.dump import Dump
from millrace.producer.serve.requests import DumpRequest
from millrace.producer.serve.wire import Wire
from millrace.producer.snapshot.encoder import ReadPlace, RowEncoder
from millrace.producer.snapshot.images import read_images
from millrace.producer.snapshot.kernel.rows import changed_keys
from millrace.producer.snapshot.select_list import Selection, selection_program
from millrace.producer.source.receive.dump_stream import DumpStream, StreamFigures
from millrace.producer.source.receive.verification import Verifier
from millrace.schemas.documents import Member
from millrace.schemas.gtid import Flavour, any_gtid_of, parse_gtid_set
from millrace.schemas.place import FIRST_POS, Coordinates
from millrace.schemas.progress import Progress
from millrace.schemas.record.avro_schema import envelope_schema, key_schema
from millrace.schemas.record.control import Origin, RegisteredSchema

_FILE = "mysql-bin.000001"
_SERVER = "00000000-0000-0000-0000-000000000001"
_EVENT_TYPES = 42  # the number of post-header lengths, one byte for each event type


def warm() -> None:
    """Run every compiled function of capture once, in a temporary folder and over a socket pair."""
    with tempfile.TemporaryDirectory(prefix="millrace-warm-") as name:
        relay = RelayLog.open(Path(name), flavour=Flavour.MYSQL)
        subdir = relay.begin_subdir(_SERVER)
        relay.begin_file(_FILE)
        head = _head()
        end = FIRST_POS + len(head)
        relay.append(np.frombuffer(head, np.uint8), end=end, last_group_at=0, runs=new_runs()[:0])
        _receive_nothing(relay)
        relay.close()
        relay = RelayLog.open(Path(name), flavour=Flavour.MYSQL)
        octets = np.frombuffer(bytearray(head), np.uint8)
        has_right_sum(lambda pos, count: octets[pos : pos + count], 0, len(head))
        _convert(relay, Coordinates(str(subdir), _FILE, FIRST_POS))
        warm_snapshot()
        relay.close()
        _serve(Path(name))
    note_compiled()


def _receive_nothing(relay: RelayLog) -> None:
    """Receive a part of a packet head, then the end of the connection."""
    client, server = socket.socketpair()
    with client, server:
        server.send(b"\0")
        server.shutdown(socket.SHUT_WR)
        stream = DumpStream(
            client,
            relay,
            member=Member("warm", 0),
            silence_s=1.0,
            figures=StreamFigures(),
            verification=Verifier(relay, threading.Event(), lambda: None),
        )
        try:
            stream.run(threading.Event(), file=_FILE, start=FIRST_POS, known_end=FIRST_POS)
        except Retryable:
            return


def _convert(relay: RelayLog, at: Coordinates) -> None:
    with RelayReader(relay) as reader:
        converter = Converter(
            source=ConverterSource("warm", "warm", Flavour.MYSQL, "warm"),
            reader=reader,
            register=lambda _subject, _schema: 1,
            progress=Progress(parse_gtid_set(Flavour.MYSQL, ""), None, 0),
            at=at,
        )
        converter.next_batch(rows_max=1, bytes_max=1 << 16, timeout_s=0.0)


def _serve(root: Path) -> None:
    """Send the file to a client that does not read: its two events fit into the socket's buffer."""
    client, server = socket.socketpair()
    with client, server:
        request = DumpRequest(
            server_id=0,
            uuid="",
            done=None,
            file="",
            pos=FIRST_POS,
            is_endless=False,
            has_annotations=False,
            has_checksum=True,
            heartbeat_s=0.0,
        )
        Dump(Wire(server), Catalogue(root), request, server_id=1).run(threading.Event())


def _head() -> bytes:
    description = struct.pack("<H50sIB", 4, b"9.7.0-warm", 0, 19) + bytes(_EVENT_TYPES) + b"\1"
    first = _event(FORMAT_DESCRIPTION, description, at=FIRST_POS)
    return first + _event(PREVIOUS_GTIDS, bytes(8), at=FIRST_POS + len(first))


def _event(kind: int, body: bytes, *, at: int) -> bytes:
    size = 19 + len(body) + 4
    whole = struct.pack("<IBIIIH", 0, kind, 1, size, at + size, 0) + body
    return whole + struct.pack("<I", zlib.crc32(whole))


def warm_snapshot() -> None:
    """Encode and stamp one row of a table with one column, and find its key."""
    columns = {"a": CatalogColumn("a", "int", "int", "", "", False, False)}
    table = CatalogTable("warm", "t", columns, (UniqueKey("PRIMARY", ("a",), True),))
    schema = table_schema(table, Flavour.MYSQL, {})
    selection = Selection.of(table, schema)
    gtid = any_gtid_of(parse_gtid_set(Flavour.MYSQL, ""))
    encoder = RowEncoder(Origin(Flavour.MYSQL, "warm", "warm"), selection)
    images = read_images(_OneRow(), selection, keys=0, bytes_max=1)
    rows = encoder.encode(images, ReadPlace("warm", 0, gtid, 0))
    key = key_schema("warm", schema)
    assert key is not None
    buffer, bounds = rows.stamp(
        rows.without(()),
        value=RegisteredSchema("v", 1, envelope_schema("warm", schema)),
        key=RegisteredSchema("k", 2, key),
        seq=0,
    )
    program = selection_program(schema, KernelArrays(), CharsetTables())
    spans = np.zeros(2 * p.KEY_COLUMNS_MAX, np.int64)
    out, ends = np.zeros(len(buffer) + 64, np.uint8), np.zeros(2, np.int64)
    changed_keys(buffer, bounds, program.columns, 0, 1, 1, spans, out, ends)


class _OneRow:
    """The packets of a result with one row, which has the text 1 (``RowPackets``)."""

    sequence = 0

    def __init__(self) -> None:
        self._left = memoryview(b"\2\0\0\0\0011" + b"\5\0\0\1\xfe\0\0\2\0")

    def read(self, room: memoryview) -> int:
        taken, self._left = self._left[: len(room)], self._left[len(room) :]
        room[: len(taken)] = taken
        return len(taken)

    def end(self, _packet: bytes) -> None: ...


if __name__ == "__main__":
    warm()
