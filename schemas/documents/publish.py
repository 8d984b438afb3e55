"""The fields of a publish task that no other document has: its topics and the format of its records.

    topics: "public.{database}.{table}"
    partitions: 8
    partition_by: key | table | [{table: shop.order*, columns: [customer]}]
    slots: 1
    compression: gzip
    topic_settings: {replication_factor: 3, cleanup_policy: compact}
    on_change: continue | new_topics
    records: debezium-json | {format: json, tombstones: false, …}

``format`` is the version of every document's layout, so the format of the records is in ``records``.
"""

from collections.abc import Callable
from dataclasses import fields as fields_of
from enum import Enum, StrEnum

from millrace.schemas.documents import readers
from millrace.schemas.documents.fields import Fields, Unreadable, shown
from millrace.schemas.documents.model import (
    DEFAULT_FORMAT,
    OUTPUT_PATTERN,
    PARTITIONS_MAX,
    SLOTS_MAX,
    OutputSettings,
    OutputTopics,
    PartitionBy,
    PartitionRule,
    PublishTask,
    TopicCompression,
)
from millrace.schemas.documents.readers import TOPIC_CHARACTERS_MAX, described
from millrace.schemas.documents.registry import EXAMPLE as REGISTRY_EXAMPLE
from millrace.schemas.documents.topic_names import may_be_equal
from millrace.schemas.documents.view import COLUMNS_MAX, RULES_MAX, column
from millrace.schemas.view.format_options import (
    HEARTBEAT_MS_MAX,
    LATER,
    OPTIONS,
    FormatName,
    FormatOptions,
    Types,
    ZeroDates,
)
from millrace.schemas.view.view import filled, places_of

Plain = dict[str, object]

RULE_WANTED = "{table: shop.order*, columns: [customer]}"
RECORDS_EXAMPLE = "{format: debezium-json, tombstones: false}"
_PLACES = ("task", "database", "table")
_BY_KEY: PartitionBy | tuple[PartitionRule, ...] = PartitionBy.KEY
_ENVELOPE_ONLY = (
    "schemas",
    "transaction_topic",
    "schema_change_topic",
)  # fields that only Debezium's JSON has


def take_topics(fields: Fields, settings: OutputSettings) -> OutputTopics:
    """The output topics, with ``settings``, which are read already."""
    return OutputTopics(
        pattern=fields.take("topics", _pattern, OUTPUT_PATTERN, needed=False),
        partitions=fields.take("partitions", readers.integer(1, PARTITIONS_MAX), 1, needed=False),
        partition_by=fields.take("partition_by", _partition_by, _BY_KEY, needed=False),
        slots=fields.take("slots", readers.integer(1, SLOTS_MAX), 1, needed=False),
        compression=fields.take(
            "compression", readers.choice(TopicCompression), TopicCompression.GZIP, needed=False
        ),
        settings=settings,
    )


def take_records(fields: Fields) -> FormatOptions:
    """The format of the records, with its options."""
    part = fields.part("records", needed=False, example=RECORDS_EXAMPLE, short="format")
    name = part.take("format", readers.choice(FormatName), DEFAULT_FORMAT.name, needed=False)
    values: dict[str, object] = {}
    for option, of_format in _options(FormatOptions.of(name)):
        is_number = option == "zero_dates" and values["types"] is Types.LOGICAL
        default = ZeroDates.NULL if is_number else of_format
        is_common = all(getattr(FormatOptions.of(other), option) == default for other in FormatName)
        # a default that depends on the format is not in the JSON Schema
        value = part.take(option, _reader(default), default if is_common else None, needed=False)
        value = default if value is None else value
        if value != default and not _has(name, option):
            others = " or ".join(other.value for other in FormatName if _has(other, option))
            part.refuse(option, shown(_plain(value)), f"format: {others} with it")
        values[option] = value
    options = FormatOptions(name, **values)  # type: ignore[arg-type]  # each has the type of its default
    _refuse_types(part, options)
    if options.heartbeat_topic and not options.heartbeat_ms:
        part.refuse("heartbeat_topic", shown(options.heartbeat_topic), "heartbeat_ms with it")
    part.finish()
    return options


def _refuse_types(part: Fields, options: FormatOptions) -> None:
    """Refuse types that the format does not have, and texts where a schema has numbers."""
    if options.name is FormatName.AVRO and options.types is Types.DEBEZIUM:
        part.refuse("types", shown("debezium"), "exact or logical, or format: debezium-avro")
    elif options.name is not FormatName.AVRO and options.types is Types.LOGICAL:
        part.refuse("types", shown("logical"), "format: avro with it")
    elif options.name is not FormatName.JSON and not options.fits_schemas:
        wanted = "null, epoch or stop: the schema has numbers for dates"
        part.refuse("zero_dates", shown("string"), wanted)


def refuse_missing_registry(fields: Fields, task: PublishTask) -> None:
    """Refuse a format whose schemas are in a registry without one."""
    if task.format.name.is_avro and not task.source.registry.url:
        wanted = (
            f"the registry for the schemas of {task.format.name.value}, such as {REGISTRY_EXAMPLE}"
        )
        fields.refuse("registry", "none", wanted)


def refuse_own_topics(fields: Fields, task: PublishTask) -> None:
    """Refuse a pattern that may give a table the name of another topic of the same task."""
    pattern = task.topics.pattern_of(task.name)
    others = {
        "the set topic": task.source.topic,
        "the topic of the task's progress": task.progress_topic,
        **{f"records.{option}": name for option, name in task.other_topics.items()},
    }
    names = [name for name in others.values() if name]
    for option, name in task.other_topics.items():
        if names.count(name) > 1:
            fields.refuse("records", shown({option: name}), "a separate topic for each use")
    for meaning, other in others.items():
        if other and may_be_equal(pattern, other):
            wanted = f"a pattern that never gives {other}, {meaning}; such as {OUTPUT_PATTERN}"
            fields.refuse("topics", shown(task.topics.pattern), wanted)


def plain_topics(topics: OutputTopics) -> Plain:
    """The fields of ``take_topics`` as plain values, without the settings."""
    by = topics.partition_by
    return {
        "topics": topics.pattern,
        "partitions": topics.partitions,
        "partition_by": by.value
        if isinstance(by, PartitionBy)
        else [{"table": rule.table, "columns": list(rule.columns)} for rule in by],
        "slots": topics.slots,
        "compression": topics.compression.value,
    }


def plain_records(options: FormatOptions) -> Plain:
    """The format of the records as plain values. All its options are written, except an empty topic and ``LATER``."""
    plain: Plain = {"format": options.name.value}
    defaults = FormatOptions.of(options.name)
    for option, value in _options(options):
        is_left_out = value == "" or (option in LATER and value == getattr(defaults, option))
        if not is_left_out and option in OPTIONS[options.name]:
            plain[option] = _plain(value)
    return plain


def _plain(value: object) -> object:
    return value.value if isinstance(value, Enum) else value


def _has(name: FormatName, option: str) -> bool:
    """Whether a format has an option that the document may set."""
    is_envelope = name is not FormatName.JSON or option not in _ENVELOPE_ONLY
    return option in OPTIONS[name] and is_envelope


def _options(options: FormatOptions) -> list[tuple[str, object]]:
    """The names and values of all fields but the format's name."""
    return [(each.name, getattr(options, each.name)) for each in fields_of(options)[1:]]


def _reader(default: object) -> Callable[[object], object]:
    """The reader of an option, by the type of its default."""
    if isinstance(default, bool):
        return readers.flag
    if isinstance(default, int):
        return readers.integer(0, HEARTBEAT_MS_MAX)
    return readers.choice(type(default)) if isinstance(default, StrEnum) else readers.topic


@described(type="string", minLength=1, maxLength=TOPIC_CHARACTERS_MAX)
def _pattern(value: object) -> str:
    """The name of a topic with places: ``{task}``, ``{database}`` and ``{table}``."""
    wanted = "a topic name, with {task}, {database} and {table} as places, such as public.{database}.{table}"
    if not isinstance(value, str) or not set(places_of(value)) <= set(_PLACES):
        raise Unreadable(wanted)
    try:
        readers.topic(filled(value, dict.fromkeys(_PLACES, "x")))
    except Unreadable as problem:
        raise Unreadable(wanted) from problem
    return value


_PARTITION_WANTED = f"key | table | a list such as [{RULE_WANTED}]"


@described(
    oneOf=[
        {"enum": [word.value for word in PartitionBy]},
        {
            "type": "array",
            "minItems": 1,
            "maxItems": RULES_MAX,
            "items": {
                "type": "object",
                "required": ["table", "columns"],
                "additionalProperties": False,
                "properties": {
                    "table": readers.schema_of(readers.table_pattern),
                    "columns": {
                        "type": "array",
                        "minItems": 1,
                        "maxItems": COLUMNS_MAX,
                        "items": readers.schema_of(column),
                    },
                },
            },
        },
    ]
)
def _partition_by(value: object) -> PartitionBy | tuple[PartitionRule, ...]:
    if isinstance(value, str) and value in tuple(PartitionBy):
        return PartitionBy(value)
    if not isinstance(value, list) or not 0 < len(value) <= RULES_MAX:
        raise Unreadable(_PARTITION_WANTED)
    return tuple(_partition_rule(number, rule) for number, rule in enumerate(value))


def _partition_rule(number: int, value: object) -> PartitionRule:
    if not isinstance(value, dict) or value.keys() != {"table", "columns"}:
        raise Unreadable(RULE_WANTED, found=f"{shown(value)} at [{number}]")
    columns = value["columns"]
    if not isinstance(columns, list) or not 0 < len(columns) <= COLUMNS_MAX:
        raise Unreadable("a list of columns", found=f"{shown(columns)} at [{number}].columns")
    table = _inner(value["table"], readers.table_pattern, f"[{number}].table")
    named = [
        _inner(name, column, f"[{number}].columns[{place}]") for place, name in enumerate(columns)
    ]
    return PartitionRule(table, tuple(named))


def _inner(value: object, read: Callable[[object], str], place: str) -> str:
    try:
        return read(value)
    except Unreadable as problem:
        raise Unreadable(problem.wanted, found=f"{shown(value)} at {place}") from problem
