"""Maxwell's ``config.properties``, with the words of Maxwell 1.43's documentation.

A configuration becomes a set, a capture task and a publish task with Maxwell's JSON.
"""

import re
from collections.abc import Mapping
from types import MappingProxyType

from millrace.schemas.moving.draft import (
    TLS_MODES,
    Draft,
    Plain,
    Settings,
    SetTopic,
    brokers_of,
    name_of,
    password_of,
    port_of,
    registry_of,
    tables,
)
from millrace.schemas.moving.patterns import Inexpressible, patterns_of, split_list
from millrace.schemas.view.format_options import OPTIONS, FormatName

_PLACES = (("%{database}", "{database}"), ("%{table}", "{table}"), ("%{db}", "{database}"))
_ORDERED = (
    "`include` and `exclude` of the capture task: a table in both is excluded, whatever the order"
)

_ANSWERS: Mapping[str, str] = MappingProxyType(
    {
        "producer": "`kafka`: Millrace writes to Kafka alone",
        "filter": _ORDERED,
        "javascript": "nothing: records are not transformed; a view has tables, rows, columns, names and masks",
        "encrypt": "`mask` of a rule in `tables`; `kafka` has TLS. Records are not encrypted",
        "secret_key": "nothing: records are not encrypted",
        "output_ddl": "nothing in this version: no topic has the DDL statements in Maxwell's form",
        "ddl_kafka_topic": "nothing in this version: no topic has the DDL statements in Maxwell's form",
        "output_": "nothing: `records` has the other options of Maxwell (docs/formats.md)",
        "row_query_max_length": "nothing: records have no statement",
        "kafka_partition_hash": "nothing: Kafka's own hash of the key",
        "producer_partition_by": "`partition_by`: key, table, or columns of the key",
        "producer_partition_columns": "`partition_by`: columns of the key",
        "producer_partition_by_fallback": "nothing",
        "dead_letter_topic": "nothing: what can't be published stops the task",
        "ignore_producer_error": "nothing: what can't be published stops the task",
        "kafka.security.protocol": "`kafka`: tls and sasl",
        "kafka.sasl.": "`kafka`: sasl",
        "kafka.ssl.": "`kafka`: tls_ca, tls_cert and tls_key",
        "schema_": "nothing: structures are read from the binlog",
        "replication_": "`members` of the set",
        "init_position": "`start`: first or a GTID set",
        "custom_producer.": "nothing: Millrace writes to Kafka alone",
        "metrics_": "`--http` of each process (docs/metrics.md)",
        "env_config_prefix": "give the variables as lines of a file",
        "ha": "nothing: any worker takes a task over (docs/placement.md)",
    }
)
_NEEDLESS = (
    "log_level",
    "client_id",
    "replica_server_id",
    "schema_database",
    "max_schemas",
    "gtid_mode",
    "master_recovery",
    "recapture_schema",
    "binlog_heartbeat",
    "binlog_event_queue_size",
    "buffer_memory_usage",
    "ignore_missing_schema",
    "jdbc_options",
    "replication_jdbc_options",
    "producer_ack_timeout",
    "kafka_version",
    "kafka.acks",
    "kafka.retries",
    "kafka.batch.size",
    "kafka.linger.ms",
    "kafka.max*",
    "kafka.request*",
    "kafka.buffer.memory",
    "http_*",
    "jgroups_config",
    "raft_member_id",
)


def draft_of_maxwell(values: Mapping[str, str]) -> Draft:
    """The documents of one configuration."""
    settings = Settings(values)
    draft = Draft("Maxwell")
    producer = settings.take("producer", default="kafka")
    if producer != "kafka":
        settings.leave("producer", producer, _ANSWERS["producer"])
    source = name_of(settings.take("client_id", default="maxwell"), "maxwell")
    kafka = brokers_of(settings.take("kafka.bootstrap.servers"), settings)
    shared = SetTopic(f"{source}.set", kafka, registry_of("", settings))
    draft.documents = [
        _set(settings, source),
        shared.capture(f"{source}-capture", source, _tables(settings)),
        shared.reader(
            f"{source}-public",
            "publish",
            {**_topics(settings), "records": _records(settings)},
        ),
    ]
    settings.ignore(*_NEEDLESS)
    draft.left = settings.rest(_ANSWERS)
    draft.to_fill = settings.to_fill
    return draft


def _set(settings: Settings, name: str) -> Plain:
    host = settings.take("replication_host", "host", default="localhost")
    port = settings.take("replication_port", "port", default="3306")
    mode = settings.take("replication_ssl", "ssl", default="DISABLED").upper()
    password = settings.take("replication_password", "password")
    return {
        "set": name,
        "members": [{"host": host, "port": port_of(port)}],
        "user": settings.take("replication_user", "user", default="maxwell"),
        "password": password_of(password, name, settings),
        "tls": TLS_MODES.get(mode, mode.lower()),
    }


def _tables(settings: Settings) -> Plain:
    """Maxwell takes the last rule that matches; here, an excluded table is excluded whatever the order."""
    include: list[str] = []
    exclude: list[str] = []
    is_chosen = False
    for rule in split_list(settings.take("filter")):
        match = re.fullmatch(r"(include|exclude|blacklist)\s*:\s*(.+)", rule, re.IGNORECASE)
        pattern = _pattern(match[2]) if match else ""
        is_include = bool(match) and match[1].lower() == "include"  # type: ignore[index]  # bool(match)
        if pattern == "*.*" and not is_include:
            include, exclude, is_chosen = [], [], True
        elif not pattern or (is_include and (exclude or not is_chosen)):
            settings.leave("filter", rule, _ORDERED)
        else:
            (include if is_include else exclude).append(pattern)
    return tables(include, exclude, is_chosen=is_chosen)


def _pattern(text: str) -> str:
    """``database.table``; "" for a condition on a column, or an expression without a pattern."""
    parts = re.findall(r"/(?:\\.|[^/\\])*/|`[^`]*`|\"[^\"]*\"|'[^']*'|[^.\s]+", text.strip())
    try:
        names = [_name(part) for part in parts]
    except Inexpressible:
        return ""
    return ".".join(names) if len(names) == 2 and "=" not in text else ""


def _name(part: str) -> str:
    if part.startswith("/"):
        patterns = patterns_of(part.strip("/"))
        if len(patterns) > 1:
            raise Inexpressible
        return patterns[0]
    return part.strip("`\"'")


def _topics(settings: Settings) -> Plain:
    topic = settings.take("kafka_topic", default="maxwell")
    for place, ours in _PLACES:
        topic = topic.replace(place, ours)
    partition_by = settings.take("producer_partition_by", default="database")
    if partition_by not in ("primary_key", "table"):
        settings.leave("producer_partition_by", partition_by, _ANSWERS["producer_partition_by"])
    compression = settings.take("kafka.compression.type")
    is_merged = "{table}" not in topic or "{database}" not in topic
    return {
        **({"start": "snapshot"} if settings.take("bootstrapper") == "sync" else {}),
        **({"tables": [{"from": "*.*", "merge": True}]} if is_merged else {}),
        "topics": topic,
        **({"partition_by": "table"} if partition_by == "table" and not is_merged else {}),
        **(
            {"compression": compression} if compression in ("gzip", "snappy", "lz4", "zstd") else {}
        ),
    }


def _records(settings: Settings) -> Plain:
    """Maxwell's own options have their names in ``records``."""
    options: Plain = {"format": FormatName.MAXWELL_JSON.value}
    if settings.take("output_null_zerodates") == "true":
        options["zero_dates"] = "null"
    for option in sorted(OPTIONS[FormatName.MAXWELL_JSON]):
        if option.startswith("output_") and (value := settings.take(option)):
            options[option] = value == "true"
    if key_format := settings.take("kafka_key_format"):
        options["kafka_key_format"] = key_format
    return options
