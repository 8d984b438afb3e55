"""The format of a publish task's records and its options. ``docs/formats.md`` describes what each writes.

    debezium-json   the records of Debezium's MySQL and MariaDB connectors, as JSON
    json            the key's columns as one JSON object, the row as another; a tombstone for a delete
    maxwell-json    the records of Maxwell's daemon
    canal-json      Canal's flat messages, with one row each
    debezium-avro   the records of ``debezium-json`` in Avro, as Kafka Connect's Avro converters write them
    avro            the envelope of the set topic for one table, in Avro

``OPTIONS`` says which options a format has. Of the others, ``json`` ignores those of ``debezium-json``.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

HEARTBEAT_PREFIX = "__debezium-heartbeat"  # Debezium's default of ``topic.heartbeat.prefix``
HEARTBEAT_MS_MAX = 86_400_000


class FormatName(StrEnum):
    """The formats."""

    DEBEZIUM_JSON = "debezium-json"
    JSON = "json"
    MAXWELL_JSON = "maxwell-json"
    CANAL_JSON = "canal-json"
    DEBEZIUM_AVRO = "debezium-avro"
    AVRO = "avro"

    @property
    def is_debezium(self) -> bool:
        """Whether records have Debezium's envelope."""
        return self in (FormatName.DEBEZIUM_JSON, FormatName.DEBEZIUM_AVRO)

    @property
    def is_avro(self) -> bool:
        """Whether a registry has the schemas of the records."""
        return self in (FormatName.DEBEZIUM_AVRO, FormatName.AVRO)


class Types(StrEnum):
    """The types of Debezium, or texts as the set topic has them; ``logical``: dates and times as Avro's logical types.

    ``avro`` has the last two, Debezium's formats the first two.
    """

    DEBEZIUM = "debezium"
    EXACT = "exact"
    LOGICAL = "logical"


class DecimalMode(StrEnum):
    """DECIMAL. ``precise``: Debezium's bytes; in ``json`` a number with all digits."""

    PRECISE = "precise"
    DOUBLE = "double"
    STRING = "string"


class TimeMode(StrEnum):
    """Debezium's ``time.precision.mode``."""

    ADAPTIVE_TIME_MICROSECONDS = "adaptive_time_microseconds"
    ADAPTIVE = "adaptive"
    CONNECT = "connect"
    ISOSTRING = "isostring"
    MICROSECONDS = "microseconds"
    NANOSECONDS = "nanoseconds"


class BigintUnsigned(StrEnum):
    """Debezium's ``bigint.unsigned.handling.mode``. ``long``: values from 2^63 on are negative."""

    LONG = "long"
    PRECISE = "precise"


class BinaryMode(StrEnum):
    """Debezium's ``binary.handling.mode``; ``bytes`` and ``base64`` look the same in JSON."""

    BYTES = "bytes"
    BASE64 = "base64"
    BASE64_URL_SAFE = "base64-url-safe"
    HEX = "hex"


class Undecodable(StrEnum):
    """Text whose bytes are not valid in its character set: U+FFFD, the bytes in base64, or stop."""

    REPLACE = "replace"
    BYTES = "bytes"
    STOP = "stop"


class ZeroDates(StrEnum):
    """Dates that no calendar has. ``null``: 1970-01-01 in a column that is NOT NULL, as Debezium does."""

    NULL = "null"
    EPOCH = "epoch"
    STRING = "string"
    STOP = "stop"


class WideDecimal(StrEnum):
    """DECIMAL with more than 38 digits: as the others, as a text, or stop."""

    SAME = "same"
    STRING = "string"
    STOP = "stop"


class KeyChanges(StrEnum):
    """An update that changes the key: one record under the new key, or a delete of the old one and an insert."""

    UPDATE = "update"
    DELETE_AND_INSERT = "delete_and_insert"


class KeyFormat(StrEnum):
    """Maxwell's ``kafka_key_format``."""

    HASH = "hash"
    ARRAY = "array"


class BootstrapType(StrEnum):
    """The ``type`` of a snapshot's rows in Maxwell's records: Maxwell's word, or that of other inserts."""

    BOOTSTRAP_INSERT = "bootstrap-insert"
    INSERT = "insert"


@dataclass(frozen=True, slots=True)
class FormatOptions:
    """A format with its options. ``transaction_topic``: "" for no transaction metadata.

    ``cloudevents``: whether records have the attributes of CloudEvents as headers. ``heartbeat_ms``: 0 for no
    heartbeats; ``heartbeat_topic``: "" for the name that Debezium would choose. ``schema_change_topic``: "" for none.
    """

    name: FormatName
    schemas: bool = False
    tombstones: bool = True
    transaction_topic: str = ""
    types: Types = Types.DEBEZIUM
    decimal: DecimalMode = DecimalMode.PRECISE
    time: TimeMode = TimeMode.ADAPTIVE_TIME_MICROSECONDS
    bigint_unsigned: BigintUnsigned = BigintUnsigned.LONG
    binary: BinaryMode = BinaryMode.BYTES
    undecodable: Undecodable = Undecodable.REPLACE
    zero_dates: ZeroDates = ZeroDates.NULL
    wide_decimal: WideDecimal = WideDecimal.SAME
    key_changes: KeyChanges = KeyChanges.UPDATE
    kafka_key_format: KeyFormat = KeyFormat.HASH
    bootstrap_type: BootstrapType = BootstrapType.BOOTSTRAP_INSERT
    output_commit_info: bool = True
    output_xoffset: bool = False
    output_binlog_position: bool = False
    output_gtid_position: bool = False
    output_server_id: bool = False
    output_primary_keys: bool = False
    output_primary_key_columns: bool = False
    output_nulls: bool = True
    cloudevents: bool = False
    heartbeat_ms: int = 0
    heartbeat_topic: str = ""
    schema_change_topic: str = ""

    @property
    def fits_schemas(self) -> bool:
        """False if ``zero_dates`` would write a text where the schema has a number."""
        is_iso = self.types is Types.DEBEZIUM and self.time is TimeMode.ISOSTRING
        has_schema = self.schemas or self.name.is_avro
        is_text = is_iso or self.types is Types.EXACT
        return not has_schema or is_text or self.zero_dates is not ZeroDates.STRING

    @classmethod
    def of(cls, name: FormatName) -> "FormatOptions":
        """The defaults of a format."""
        if name is FormatName.JSON:
            return cls(name, decimal=DecimalMode.STRING, zero_dates=ZeroDates.STRING)
        if name in (FormatName.MAXWELL_JSON, FormatName.CANAL_JSON):
            return cls(name, tombstones=False, zero_dates=ZeroDates.STRING)
        if name is FormatName.AVRO:
            return cls(name, types=Types.EXACT, zero_dates=ZeroDates.STRING)
        return cls(name)


# Options that came later: a document without them is the same definition as before, so defaults are not written.
LATER = frozenset({"cloudevents", "heartbeat_ms", "heartbeat_topic", "schema_change_topic"})

_VALUES = (LATER - {"schema_change_topic"}) | {"undecodable", "zero_dates"}
_DEBEZIUM = _VALUES | {
    "schemas",
    "tombstones",
    "transaction_topic",
    "schema_change_topic",
    "types",
    "decimal",
    "time",
    "bigint_unsigned",
    "binary",
    "wide_decimal",
}
_FLAT = _VALUES | {"tombstones", "key_changes"}
_MAXWELL = _FLAT | {
    "decimal",
    "kafka_key_format",
    "bootstrap_type",
    "output_commit_info",
    "output_xoffset",
    "output_binlog_position",
    "output_gtid_position",
    "output_server_id",
    "output_primary_keys",
    "output_primary_key_columns",
    "output_nulls",
}

_AVRO = _DEBEZIUM - {"schemas"}

OPTIONS: Mapping[FormatName, frozenset[str]] = {
    FormatName.DEBEZIUM_JSON: _DEBEZIUM,
    FormatName.DEBEZIUM_AVRO: _AVRO,
    FormatName.AVRO: _AVRO
    - {"transaction_topic", "schema_change_topic", "time", "bigint_unsigned"},
    FormatName.JSON: _DEBEZIUM,
    FormatName.MAXWELL_JSON: _MAXWELL,
    FormatName.CANAL_JSON: _FLAT,
}
