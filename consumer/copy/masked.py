"""The masked columns of a copy. No server gets a secret: an HMAC is computed here, on its way to the target.

    redact          NULL, or the type's empty value
    truncate(N)     the first characters or bytes, by LEFT on the source
    hmac-sha256     the source sends the message (see ``kernel.masks``) in UTF-8; ``MaskedPackets`` puts the 64 hex
                    characters in its place, before anything else reads the row

Each is what a stream writes for the same value. Where this is not certain, the copy is refused (MR-5082): the bytes of
UUID and INET of MariaDB, which are others in the binlog, and an ENUM or SET with an HMAC.
"""

import hmac
from collections.abc import Mapping, Sequence

from millrace.consumer.copy.columns import CopyColumn, Kind, copy_column, utf8mb4_of
from millrace.consumer.view.mask_keys import MaskKeys
from millrace.drivers.mysql.catalog import CatalogColumn
from millrace.errors import Fatal
from millrace.schemas.sql.quoting import quoted
from millrace.schemas.view.view import Mask, MaskKind
from millrace.text_protocol.arriving import RowPackets
from millrace.text_protocol.walk import HEAD_BYTES, PACKET_MAX

_ADDRESSES = {"uuid", "inet6", "inet4"}
_TEXTS = {"char", "varchar", "tinytext", "text", "mediumtext", "longtext"}
_BYTES = {"binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob"}
_INTEGERS = {"tinyint", "smallint", "mediumint", "int", "bigint"}
_TIMES = {"date", "time", "datetime", "timestamp"}
_NUMBERS = _INTEGERS | {"decimal", "float", "double"}
_HEX = CatalogColumn("", "varchar(64)", "varchar", "utf8mb4", "utf8mb4_bin", False, False)
_READ_BYTES = 1 << 16


def masked_column(source: CatalogColumn, target: CatalogColumn, mask: Mask) -> CopyColumn | None:
    """The way of a masked column; None if there is none."""
    name, base = quoted(source.name).decode(), source.base_type
    if base in _ADDRESSES and not (mask.kind is MaskKind.REDACT and source.nullable):
        return None
    if mask.kind is MaskKind.HMAC:
        message = _message(source, name)
        way = copy_column(_HEX, target, message)
        if message == "" or way is None or way.kind not in (Kind.PLAIN, Kind.TEXT):
            return None
        null = source.nullable and not target.nullable
        return CopyColumn(target.name, message, way.kind, way.load, null, mask)
    if mask.kind is MaskKind.TRUNCATE:
        return copy_column(source, target, f"LEFT({name}, {mask.length})")
    if source.nullable:
        return CopyColumn(target.name, "NULL", refuses_null=not target.nullable)
    return copy_column(source, target, empty) if (empty := _empty(source)) else None


def _empty(source: CatalogColumn) -> str:
    if source.base_type in _NUMBERS:
        return "0"
    if source.base_type == "binary":
        return f"REPEAT(x'00', {source.octets})"
    return "''" if source.base_type in _TEXTS | _BYTES else ""


def _message(source: CatalogColumn, name: str) -> str:
    """The expression of the HMAC's message; "" if it is not certain to be that of a stream."""
    base = source.base_type
    if base in _TEXTS:
        return utf8mb4_of(source, name)
    if base in _BYTES or base in _TIMES or base == "year":
        return name
    sign = "UNSIGNED" if "unsigned" in source.type_text else "SIGNED"
    if base in _INTEGERS:
        return f"CAST({name} AS {sign})"
    if base == "bit":
        return f"CAST({name} AS UNSIGNED)"
    if base == "decimal":
        scale = source.type_text.partition("(")[2].partition(")")[0].partition(",")[2] or "0"
        return f"CAST({name} AS DECIMAL(65, {scale}))"
    return ""


def keys_of(columns: Sequence[CopyColumn]) -> dict[int, bytes]:
    """The keys of the HMACs by place. Errors as ``MaskKeys.key``."""
    keys = MaskKeys()
    return {
        place: keys.key(column.mask)
        for place, column in enumerate(columns)
        if column.mask is not None
    }


class MaskedPackets:
    """The packets of a result with HMACs in the place of messages. Implements ``RowPackets``.

    ``texts``: the places whose messages must be valid UTF-8; Fatal MR-5202 for one that is not.
    """

    def __init__(
        self,
        packets: RowPackets,
        keys: Mapping[int, bytes],
        texts: frozenset[int] = frozenset(),
        name: str = "",
    ) -> None:
        self._packets, self._keys, self._texts, self._name = packets, keys, texts, name
        self.sequence = self._next = packets.sequence
        self._held = bytearray()  # of the server, not read yet
        self._row = bytearray()  # the first packets of a row that has several
        self._out = bytearray()
        self._at = 0  # in ``_out``

    def read(self, room: memoryview) -> int:
        """See ``RowPackets``."""
        while self._at == len(self._out):
            self._out.clear()
            self._at = 0
            if not self._fill():
                return 0
        count = min(len(room), len(self._out) - self._at)
        room[:count] = self._out[self._at : self._at + count]
        self._at += count
        return count

    def end(self, packet: bytes) -> None:
        """See ``RowPackets``."""
        self._packets.end(packet)

    def _fill(self) -> bool:
        """Mask the packets that have arrived, after more have; False at the end of the connection."""
        room = bytearray(_READ_BYTES)
        count = self._packets.read(memoryview(room))
        self._held += room[:count]
        at = 0
        while len(self._held) >= at + HEAD_BYTES:
            length = int.from_bytes(self._held[at : at + 3], "little")
            begin, end = at + HEAD_BYTES, at + HEAD_BYTES + length
            if len(self._held) < end:
                break
            self._row += self._held[begin:end]
            at = end
            if length < PACKET_MAX:
                row = bytes(self._row)
                self._row.clear()
                is_last = row[:1] == b"\xff" or (row[:1] == b"\xfe" and len(row) < 9)
                self._put(row if is_last else self._masked(row))
        del self._held[:at]
        return count > 0

    def _put(self, row: bytes) -> None:
        length = PACKET_MAX
        at = 0
        while length == PACKET_MAX:
            part = row[at : at + PACKET_MAX]
            length = len(part)
            self._out += length.to_bytes(3, "little") + bytes([self._next]) + part
            self._next = (self._next + 1) & 0xFF
            at += length

    def _masked(self, row: bytes) -> bytes:
        found, at, place = bytearray(), 0, 0
        while at < len(row):
            begin, first = at, row[at]
            at += 1
            if first != _NULL:
                head = _SIZES.get(first, 0)
                size = int.from_bytes(row[at : at + head], "little") if head else first
                at += head
                if (key := self._keys.get(place)) is not None:
                    found += self._hmac(key, row[at : at + size], place)
                    at += size
                    place += 1
                    continue
                at += size
            found += row[begin:at]
            place += 1
        return bytes(found)

    def _hmac(self, key: bytes, message: bytes, place: int) -> bytes:
        if place in self._texts:
            try:
                message.decode()
            except UnicodeDecodeError:
                what = f"a mask of {self._name} needs a text, and the value is not valid"
                raise Fatal("MR-5202", what, table=self._name) from None
        digest = hmac.digest(key, message, "sha256").hex().encode()
        return bytes([len(digest)]) + digest


_NULL = 0xFB
_SIZES = {0xFC: 2, 0xFD: 3, 0xFE: 8}
