"""The columns of a view in a format: which form each value gets, and the Connect schema that describes it.

A form is a way to write a value (``kernel.json_values``). The types are those of Debezium's MySQL and MariaDB
connectors, or texts as the set topic has them. ``docs/formats.md`` has the table.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from millrace.consumer.kernel import json_values as forms
from millrace.schemas.record.avro_schema import Json
from millrace.schemas.table.structure import (
    INTEGER_CODES,
    TEMPORAL_CODES,
    Column,
    ColumnType,
    TypeCode,
)
from millrace.schemas.view.format_options import (
    BigintUnsigned,
    BinaryMode,
    DecimalMode,
    FormatName,
    FormatOptions,
    TimeMode,
    Types,
    Undecodable,
    WideDecimal,
    ZeroDates,
)

WIDE_DIGITS = 38  # more digits than Spark, Hive and others have for a decimal

_FALLBACKS: Mapping[ZeroDates, int] = {
    ZeroDates.NULL: forms.AS_NULL,
    ZeroDates.EPOCH: forms.AS_EPOCH,
    ZeroDates.STRING: forms.AS_TEXT,
    ZeroDates.STOP: forms.STOP,
}
_MS, _US, _NS = 1000, 1, -1000  # the parameter of TIME and DATETIME
_TIMES = (TypeCode.TIME, TypeCode.TIME2)
_DATES = (TypeCode.DATE, TypeCode.NEWDATE)
_ZONED = (TypeCode.TIMESTAMP, TypeCode.TIMESTAMP2)
_INTEGERS = {
    (TypeCode.TINY, False): "int16",
    (TypeCode.TINY, True): "int16",
    (TypeCode.SHORT, False): "int16",
    (TypeCode.SHORT, True): "int32",
    (TypeCode.INT24, False): "int32",
    (TypeCode.INT24, True): "int32",
    (TypeCode.LONG, False): "int32",
    (TypeCode.LONG, True): "int64",
    (TypeCode.LONGLONG, False): "int64",
    (TypeCode.LONGLONG, True): "int64",
}
_POINT_EXTENT = 1


@dataclass(frozen=True, slots=True)
class ValueForm:
    """``epoch``: the text for a date that no calendar has. ``schema``: the Connect schema without ``optional``.

    ``labels``: the table of ``kernel.json_labels``, for the forms that have one.
    """

    form: int
    schema: "dict[str, Json]" = field(default_factory=dict)
    parameter: int = 0
    epoch: str = ""
    labels: bytes = b""


def form_of(column: Column, options: FormatOptions) -> ValueForm:
    """How the values of a column are written."""
    type_ = column.type
    if type_.code in TEMPORAL_CODES:
        return _temporal(type_, options)
    if type_.code is TypeCode.NEWDECIMAL:
        return _decimal(type_, options)
    if type_.code in INTEGER_CODES:
        return _integer(type_, options)
    if type_.code is TypeCode.YEAR:
        return ValueForm(forms.INTEGER, _named("int32", "io.debezium.time.Year"))
    if type_.code is TypeCode.FLOAT:
        return ValueForm(forms.FLOATING, {"type": "float"})
    if type_.code is TypeCode.DOUBLE:
        return ValueForm(forms.FLOATING, {"type": "double"})
    return _octets(type_, options)


def text_form() -> ValueForm:
    """The form of a text, such as a masked value."""
    return ValueForm(forms.TEXT_FORM, {"type": "string"})


def fallback_of(column: Column, options: FormatOptions, value: ValueForm) -> int:
    """For ``kernel.json_values``: of a date that no calendar or form has, or of a text that is not valid."""
    if value.form == forms.TEXT_FORM:
        return forms.STOP if options.undecodable is Undecodable.STOP else forms.AS_TEXT
    fallback = _FALLBACKS[options.zero_dates]
    return forms.AS_EPOCH if fallback == forms.AS_NULL and not column.nullable else fallback


def _is_exact(options: FormatOptions) -> bool:
    """Whether values have the types of the set topic, and not those of Debezium."""
    return options.name is FormatName.JSON or options.types is not Types.DEBEZIUM


def _named(type_: str, name: str, **parameters: Json) -> "dict[str, Json]":
    schema: dict[str, Json] = {"type": type_, "name": name, "version": 1}
    return schema | {"parameters": dict(parameters)} if parameters else schema


def _integer(type_: ColumnType, options: FormatOptions) -> ValueForm:
    if type_.code is not TypeCode.LONGLONG or not type_.is_unsigned:
        return ValueForm(forms.INTEGER, {"type": _INTEGERS[type_.code, type_.is_unsigned]})
    if options.name is FormatName.JSON:
        return ValueForm(forms.DECIMAL_NUMBER)
    if options.name is FormatName.AVRO:
        return _decimal_of(20, 0, options)
    if options.types is Types.EXACT:
        return ValueForm(forms.DECIMAL_STRING, {"type": "string"})
    if options.bigint_unsigned is BigintUnsigned.LONG:
        return ValueForm(forms.UNSIGNED_AS_SIGNED, {"type": "int64"})
    return ValueForm(forms.DECIMAL_BYTES, _decimal_schema(20, 0))


def _decimal_schema(precision: int, scale: int) -> "dict[str, Json]":
    return _named(
        "bytes",
        "org.apache.kafka.connect.data.Decimal",
        **{"scale": str(scale), "connect.decimal.precision": str(precision)},
    )


def _decimal(type_: ColumnType, options: FormatOptions) -> ValueForm:
    is_wide = type_.precision > WIDE_DIGITS
    if (
        options.decimal is DecimalMode.STRING
        or (is_wide and options.wide_decimal is WideDecimal.STRING)
        or (options.name.is_debezium and options.types is Types.EXACT)
    ):
        return ValueForm(forms.DECIMAL_STRING, {"type": "string"}, type_.scale)
    return _decimal_of(type_.precision, type_.scale, options)


def _decimal_of(precision: int, scale: int, options: FormatOptions) -> ValueForm:
    """A DECIMAL, or a number that Avro has no integer for, as the option says."""
    if options.decimal is DecimalMode.STRING:
        return ValueForm(forms.DECIMAL_STRING, {"type": "string"}, scale)
    if options.decimal is DecimalMode.DOUBLE:
        return ValueForm(forms.DECIMAL_DOUBLE, {"type": "double"}, scale)
    if options.name is FormatName.JSON:
        return ValueForm(forms.DECIMAL_NUMBER, {}, scale)
    return ValueForm(forms.DECIMAL_BYTES, _decimal_schema(precision, scale), scale)


def _logical(type_: ColumnType) -> ValueForm:
    """Avro's own types: a date, a time of a day, a moment in no time zone or in UTC; all in microseconds but a date."""
    if type_.code in _DATES:
        return ValueForm(forms.DATE_DAYS, {"type": "int32", "logicalType": "date"}, epoch="0")
    if type_.code in _TIMES:
        schema: dict[str, Json] = {"type": "int64", "logicalType": "time-micros"}
        return ValueForm(forms.TIME_OF_DAY, schema, _US, "0")
    name = "timestamp-micros" if type_.code in _ZONED else "local-timestamp-micros"
    return ValueForm(forms.DATETIME_UNITS, {"type": "int64", "logicalType": name}, _US, "0")


def _temporal(type_: ColumnType, options: FormatOptions) -> ValueForm:
    if options.types is Types.LOGICAL:
        return _logical(type_)
    if _is_exact(options):
        form = forms.PLAIN if type_.code in _TIMES else forms.DATE_PLAIN
        epoch = '"1970-01-01"' if type_.code in _DATES else '"1970-01-01 00:00:00"'
        return ValueForm(form, {"type": "string"}, epoch=epoch)
    mode, digits = options.time, type_.fraction_digits
    if type_.code in _ZONED:
        schema = _named("string", "io.debezium.time.ZonedTimestamp")
        return ValueForm(forms.ZONED, schema, epoch='"1970-01-01T00:00:00Z"')
    if type_.code in _DATES:
        if mode is TimeMode.ISOSTRING:
            schema = _named("string", "io.debezium.time.IsoDate")
            return ValueForm(forms.DATE_ISO, schema, epoch='"1970-01-01Z"')
        name = "org.apache.kafka.connect.data.Date"
        if mode is not TimeMode.CONNECT:
            name = "io.debezium.time.Date"
        return ValueForm(forms.DATE_DAYS, _named("int32", name), epoch="0")
    if type_.code in _TIMES:
        return _time(mode, digits)
    return _datetime(mode, digits)


def _time(mode: TimeMode, digits: int) -> ValueForm:
    if mode is TimeMode.ISOSTRING:
        schema = _named("string", "io.debezium.time.IsoTime")
        return ValueForm(forms.TIME_ISO, schema, epoch='"00:00:00Z"')
    if mode is TimeMode.CONNECT:
        schema = _named("int32", "org.apache.kafka.connect.data.Time")
        return ValueForm(forms.TIME_OF_DAY, schema, _MS, "0")
    if mode is TimeMode.ADAPTIVE and digits <= 3:
        return ValueForm(forms.TIME_UNITS, _named("int32", "io.debezium.time.Time"), _MS, "0")
    if mode is TimeMode.NANOSECONDS:
        return ValueForm(forms.TIME_UNITS, _named("int64", "io.debezium.time.NanoTime"), _NS)
    return ValueForm(forms.TIME_UNITS, _named("int64", "io.debezium.time.MicroTime"), _US)


def _datetime(mode: TimeMode, digits: int) -> ValueForm:
    if mode is TimeMode.ISOSTRING:
        schema = _named("string", "io.debezium.time.IsoTimestamp")
        return ValueForm(forms.DATETIME_ISO, schema, epoch='"1970-01-01T00:00:00Z"')
    if mode is TimeMode.CONNECT:
        schema = _named("int64", "org.apache.kafka.connect.data.Timestamp")
        return ValueForm(forms.DATETIME_UNITS, schema, _MS, "0")
    is_adaptive = mode in (TimeMode.ADAPTIVE, TimeMode.ADAPTIVE_TIME_MICROSECONDS)
    if is_adaptive and digits <= 3:
        schema = _named("int64", "io.debezium.time.Timestamp")
        return ValueForm(forms.DATETIME_UNITS, schema, _MS, "0")
    if mode is TimeMode.NANOSECONDS:
        schema = _named("int64", "io.debezium.time.NanoTimestamp")
        return ValueForm(forms.DATETIME_UNITS, schema, _NS, "0")
    schema = _named("int64", "io.debezium.time.MicroTimestamp")
    return ValueForm(forms.DATETIME_UNITS, schema, _US, "0")


def _octets(type_: ColumnType, options: FormatOptions) -> ValueForm:
    """Types whose values are text or bytes."""
    is_exact = _is_exact(options)
    if type_.code is TypeCode.JSON:
        form = forms.DOCUMENT if is_exact else forms.COMPACT_DOCUMENT
        return ValueForm(form, _named("string", "io.debezium.data.Json"))
    if type_.code in (TypeCode.ENUM, TypeCode.SET):
        name = "Enum" if type_.code is TypeCode.ENUM else "EnumSet"
        allowed = ",".join((label or "").replace(",", "\\,") for label in type_.labels)
        return ValueForm(
            forms.TEXT_FORM, _named("string", f"io.debezium.data.{name}", allowed=allowed)
        )
    if type_.code is TypeCode.BIT:
        return _bit(type_, options)
    if type_.code is TypeCode.GEOMETRY and not is_exact:
        return _geometry(type_)
    if type_.code is TypeCode.VECTOR and not is_exact:
        items: Json = {"type": "float", "optional": False}
        schema: dict[str, Json] = {"type": "array", "items": items}
        return ValueForm(
            forms.VECTOR, schema | {"name": "io.debezium.data.FloatVector", "version": 1}
        )
    if type_.is_text:
        return text_form()
    if options.binary is BinaryMode.HEX:
        return ValueForm(forms.BINARY_HEX, {"type": "string"})
    is_bytes = options.binary is BinaryMode.BYTES
    letters = int(options.binary is BinaryMode.BASE64_URL_SAFE)
    return ValueForm(forms.BINARY, {"type": "bytes" if is_bytes else "string"}, letters)


def _bit(type_: ColumnType, options: FormatOptions) -> ValueForm:
    if options.name is FormatName.JSON:
        return ValueForm(forms.BITS_NUMBER)
    if type_.bit_count == 1:
        return ValueForm(forms.BOOLEAN, {"type": "boolean"})
    schema = _named("bytes", "io.debezium.data.Bits", length=str(type_.bit_count))
    return ValueForm(forms.BITS, schema)


def _geometry(type_: ColumnType) -> ValueForm:
    is_point = type_.extent == _POINT_EXTENT
    octets: Json = {"type": "bytes", "optional": is_point, "field": "wkb"}
    srid: Json = {"type": "int32", "optional": True, "field": "srid"}
    fields: list[Json] = [octets, srid]
    if is_point:
        fields[:0] = [{"type": "double", "optional": False, "field": name} for name in "xy"]
    schema: dict[str, Json] = {
        "type": "struct",
        "fields": fields,
        "name": f"io.debezium.data.geometry.{'Point' if is_point else 'Geometry'}",
        "version": 1,
        "doc": "Geometry (POINT)" if is_point else "Geometry",
    }
    return ValueForm(forms.POINT_GEOMETRY if is_point else forms.GEOMETRY, schema)
