"""The format of a publish task's records and its options. ``docs/formats.md`` describes what each writes.

    debezium-json   the records of Debezium's MySQL and MariaDB connectors, as JSON
    json            the key's columns as one JSON object, the row as another; a tombstone for a delete

Options that a format does not use have no effect: ``json`` has no schemas, no transactions, no types.
"""

from dataclasses import dataclass
from enum import StrEnum


class FormatName(StrEnum):
    """The formats."""

    DEBEZIUM_JSON = "debezium-json"
    JSON = "json"


class Types(StrEnum):
    """The types of ``debezium-json``: those of Debezium, or texts as the set topic has them."""

    DEBEZIUM = "debezium"
    EXACT = "exact"


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


@dataclass(frozen=True, slots=True)
class FormatOptions:
    """A format with its options. ``transaction_topic``: "" for no transaction metadata."""

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

    @property
    def fits_schemas(self) -> bool:
        """False if ``zero_dates`` would write a text where the schema has a number."""
        is_text = self.types is Types.EXACT or self.time is TimeMode.ISOSTRING
        return not self.schemas or is_text or self.zero_dates is not ZeroDates.STRING

    @classmethod
    def of(cls, name: FormatName) -> "FormatOptions":
        """The defaults of a format."""
        if name is FormatName.JSON:
            return cls(name, decimal=DecimalMode.STRING, zero_dates=ZeroDates.STRING)
        return cls(name)
