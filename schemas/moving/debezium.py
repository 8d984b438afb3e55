"""Debezium's connectors for MySQL and MariaDB: JSON of Kafka Connect, its property files, Strimzi's KafkaConnector,
and Debezium Server. The words are those of Debezium 3.6's documentation, with the names of 1.x beside them.

A connector becomes a set, a capture task and a publish task whose topics have the names and records of the connector.
The publish task is called as ``topic.prefix`` is, because ``source.name`` in its records is the task.
"""

from collections.abc import Mapping
from types import MappingProxyType

from millrace.errors import Fatal
from millrace.schemas.moving.draft import (
    Draft,
    Plain,
    Settings,
    SetTopic,
    brokers_of,
    name_of,
    partitions_of,
    password_of,
    port_of,
    registry_of,
    tables,
    tables_of,
)
from millrace.schemas.moving.patterns import Inexpressible, patterns_of
from millrace.schemas.view.format_options import HEARTBEAT_MS_MAX, HEARTBEAT_PREFIX, FormatName

_TLS = MappingProxyType(
    {
        "disabled": "disabled",
        "disable": "disabled",
        "trust": "require-unverified",
        "preferred": "require-unverified",
        "required": "require-unverified",
        "verify_ca": "verify-ca",
        "verify-ca": "verify-ca",
        "verify_identity": "verify-identity",
        "verify-full": "verify-identity",
    }
)
_WITH_ROWS = ("initial", "initial_only", "always", "when_needed")
_NO_SIZES = "nothing: Millrace sizes its batches itself"
_NO_HISTORY = "nothing: the structure of tables is in the set topic"

_ANSWERS: Mapping[str, str] = MappingProxyType(
    {
        "transforms": "nothing: records are not transformed; a view has tables, rows, columns, names and masks",
        "predicates": "nothing: a view has conditions on rows (docs/views.md)",
        "column.mask.": "`mask` of a rule in `tables`: redact, or hmac-sha256 with a key of yours; the values differ",
        "column.propagate.source.type": "nothing: schemas have no parameters of the source's type",
        "datatype.propagate.source.type": "nothing: schemas have no parameters of the source's type",
        "converters": "nothing: `types: exact` in `records` has the texts of the set topic",
        "message.key.columns": "nothing: the key is the table's own; `partition_by` chooses among its columns",
        "skipped.operations": "nothing: a publish task has every change of its tables",
        "include.schema.changes": "`schema_change_topic` in `records`, which the format json does not have",
        "include.query": "nothing: records have no statement",
        "heartbeat.action.query": "`heartbeat` of the set: {database: ops, interval_s: 10} writes a row on the primary",
        "heartbeat.": "`heartbeat_ms` in `records`",
        "snapshot.": "nothing: rows are read in chunks between the changes, without a lock",
        "signal.": "`millrace task snapshot TASK --tables …` reads tables again",
        "incremental.snapshot.": "nothing: every snapshot is in chunks; `snapshot_limits` of the capture task",
        "gtid.source.": "nothing: every transaction counts",
        "topic.naming.strategy": "`topics` of the publish task: a name with {database} and {table}",
        "topic.delimiter": "`topics` of the publish task",
        "topic.cache.size": _NO_SIZES,
        "event.processing.failure.handling.mode": "nothing: an event that can't be decoded stops the task",
        "inconsistent.schema.handling.mode": "nothing: what can't be decoded stops the task",
        "event.converting.failure.handling.mode": "`undecodable` and `zero_dates` in `records`",
        "read.only": "nothing: Millrace writes on a source only with `heartbeat`",
        "tombstones.": "`tombstones` in `records`",
        "post.processors": "nothing: records are not transformed",
        "database.ssl.": "`tls_ca` of the set: a PEM file",
        "schema.name.adjustment.mode": "nothing: other characters are written as _u<hex>_",
        "field.name.adjustment.mode": "nothing: columns keep their names",
        "custom.metric.tags": "nothing: metrics have the task's name (docs/metrics.md)",
        "notification.": "nothing: `millrace status --json` and metrics have the state",
        "openlineage.": "nothing",
        "errors.": "nothing: a temporary error is tried again, any other stops the task with a code",
        "topic.creation.": "`partitions` and `topic_settings` of the publish task are the same for all topics",
        "key.converter": "`records` of the publish task",
        "value.converter": "`records` of the publish task",
        "header.converter": "nothing: headers are texts",
        "executor.shutdown.timeout.ms": "nothing",
        "min.row.count.to.stream.results": _NO_SIZES,
        "enable.time.adjuster": "nothing: years are those of the server",
        "sink.": "`kafka` of the tasks. There is no other destination",
        "format.": "`records` of the publish task",
    }
)
_TRANSFORMS: Mapping[str, str] = MappingProxyType(
    {
        "RegexRouter": "`topics` of the publish task: a name with {database} and {table}",
        "ByLogicalTableRouter": "`to` with `merge: true` in rules of `tables`, for tables that share a topic",
        "Filter": "`where` in a rule of `tables`",
        "ReplaceField": "`columns` in a rule of `tables`",
        "MaskField": "`mask` in a rule of `tables`",
        "ExtractNewRecordState": "`records: json` has the row alone; other transforms beside it have no equal",
    }
)
# what needs no equal
_NEEDLESS = (
    "name",
    "tasks.max",
    "database.server.id*",
    "schema.history.internal*",
    "database.history*",
    "database.allowPublicKeyRetrieval",
    "database.protocol",
    "database.jdbc.driver",
    "database.connection.adapter",
    "database.connectionTimeZone",
    "database.query.timeout.ms",
    "connect.timeout.ms",
    "connect.keep.alive*",
    "connection.validation.timeout.ms",
    "max.batch.size",
    "max.queue.size*",
    "poll.interval.ms",
    "binlog.buffer.size",
    "use.nongraceful.disconnect",
    "retriable.restart.connector.wait.ms",
    "streaming.delay.ms",
    "offset.*",
    "offsets.*",
    "snapshot.fetch.size",
    "snapshot.max.threads",
    "snapshot.lock.timeout.ms",
    "snapshot.locking.mode",
    "snapshot.new.tables",
    "source.struct.version",
    "internal.*",
    "plugin.path",
    "rest.*",
    "group.id",
    "config.*",
    "key.converter.apicurio.*",
    "value.converter.apicurio.*",
    "status.*",
    "log.*",
    "quarkus.*",
)


def draft_of_debezium(values: Mapping[str, str]) -> Draft:
    """The documents of one connector. Fatal MR-4148 for a connector that reads no MySQL or MariaDB."""
    settings = Settings(values)
    _check_connector(settings.take("connector.class", "class"))
    draft = Draft("Debezium")
    prefix = settings.take("topic.prefix", "database.server.name", default="dbserver1")
    source = name_of(prefix, "source")
    kafka = _kafka(settings)
    records = _records(settings, prefix)
    registry = registry_of(
        settings.take(
            "value.converter.schema.registry.url",
            "value.converter.apicurio.registry.url",
            "key.converter.schema.registry.url",
            "key.converter.apicurio.registry.url",
        ),
        settings,
    )
    shared = SetTopic(f"{source}.set", kafka, registry)
    draft.documents = [
        _set(settings, source),
        shared.capture(f"{source}-capture", source, _tables(settings)),
        shared.reader(
            source,
            "publish",
            {
                **_start(settings),
                **_rules(settings),
                "topics": f"{_literal(prefix)}.{{database}}.{{table}}",
                **_topics(settings),
                "records": records,
            },
        ),
    ]
    settings.ignore(*_NEEDLESS)
    draft.left = settings.rest(_ANSWERS)
    draft.to_fill = settings.to_fill
    return draft


def _check_connector(name: str) -> None:
    if name.rpartition(".")[2] not in ("MySqlConnector", "MariaDbConnector"):
        raise Fatal(
            "MR-4148", f"the connector {name or 'without a class'} does not read MySQL or MariaDB"
        )


def _literal(prefix: str) -> str:
    """Characters that a topic cannot have become ``_``, as Debezium writes them."""
    return "".join(c if c.isascii() and (c.isalnum() or c in "._-") else "_" for c in prefix)


def _kafka(settings: Settings) -> Plain:
    brokers = settings.take(
        "sink.kafka.producer.bootstrap.servers",
        "bootstrap.servers",
        "schema.history.internal.kafka.bootstrap.servers",
        "database.history.kafka.bootstrap.servers",
    )
    if (sink := settings.take("sink.type")) not in ("", "kafka"):
        settings.leave("sink.type", sink, "`kafka`: Millrace writes to Kafka alone")
    return brokers_of(brokers, settings)


def _set(settings: Settings, name: str) -> Plain:
    host = settings.take("database.hostname", default="localhost")
    port = settings.take("database.port", default="3306")
    user = settings.take("database.user", default="millrace")
    if "${" in user:
        settings.to_fill.append(f"`user` of the set {name}, instead of millrace; it was {user}")
        user = "millrace"
    mode = settings.take("database.ssl.mode")
    if not mode:
        settings.to_fill.append(
            "`tls` of the set: Debezium takes TLS if the server has it and verifies nothing;"
            " Millrace verifies the certificate, unless it says require-unverified or disabled"
        )
    return {
        "set": name,
        "members": [{"host": host, "port": port_of(port)}],
        "user": user,
        "password": password_of(settings.take("database.password"), name, settings),
        **({"tls": _TLS.get(mode.lower(), mode)} if mode else {}),
    }


def _tables(settings: Settings) -> Plain:
    """The lists of databases and tables. A table must be in both include lists, and in no exclude list."""
    lists = {}
    for name, old in (("include", "whitelist"), ("exclude", "blacklist")):
        for what in ("table", "database"):
            key = f"{what}.{name}.list"
            lists[what, name] = tables_of(key, settings.take_list(key, f"{what}.{old}"), settings)
    of_tables, of_databases = lists["table", "include"], lists["database", "include"]
    is_chosen = settings.is_left("table.include.list", "database.include.list")
    databases = [pattern.partition(".")[0] for pattern in of_databases]
    if of_tables and databases:
        of_tables = [
            each for each in of_tables if each.partition(".")[0] in databases or "*" in databases
        ]
    exclude = [*lists["database", "exclude"], *lists["table", "exclude"]]
    return tables(of_tables or of_databases, exclude, is_chosen=is_chosen)


def _rules(settings: Settings) -> Plain:
    """The lists of columns as rules, before one for all other tables."""
    rules: dict[str, Plain] = {}
    for key, old, word in (
        ("column.exclude.list", "column.blacklist", "drop"),
        ("column.include.list", "column.whitelist", "keep"),
    ):
        for expression in settings.take_list(key, old):
            for table, column in _columns(key, expression, settings):
                columns = rules.setdefault(table, {}).setdefault("columns", {})
                assert isinstance(columns, dict)
                columns.setdefault(word, []).append(column)
    for match, name in settings.matching(r"column\.truncate\.to\.(\d+)\.chars"):
        for expression in settings.take_list(name):
            for table, column in _columns(name, expression, settings):
                mask = rules.setdefault(table, {}).setdefault("mask", {})
                assert isinstance(mask, dict)
                mask[column] = f"truncate({match[1]})"
    if not rules:
        return {}
    return {
        "tables": [*({"from": table, **rule} for table, rule in rules.items()), {"from": "*.*"}]
    }


def _columns(name: str, expression: str, settings: Settings) -> list[tuple[str, str]]:
    """Tables and columns of one expression ``database.table.column``."""
    try:
        patterns = patterns_of(expression)
    except Inexpressible:
        patterns = ()
    parts = [pattern.rpartition(".")[::2] for pattern in patterns]
    if not parts or any(
        "*" in column or "?" in column or "." not in table for table, column in parts
    ):
        settings.leave(name, expression, "`columns` of a rule in `tables`, which names each column")
        return []
    return parts


def _start(settings: Settings) -> Plain:
    mode = settings.take("snapshot.mode", default="initial")
    if mode in _WITH_ROWS:
        return {"start": "snapshot"}
    settings.to_fill.append(
        f"`start` of the publish task: snapshot.mode is {mode}. first begins with the oldest binlog,"
        " a GTID set where the connector ended"
    )
    return {"start": "first"}


def _topics(settings: Settings) -> Plain:
    default = "topic.creation.default."
    partitions = settings.take(f"{default}partitions")
    replicas = settings.take(f"{default}replication.factor")
    policy = settings.take(f"{default}cleanup.policy")
    retention = settings.take(f"{default}retention.ms")
    compression = settings.take(f"{default}compression.type", "producer.compression.type")
    topic_settings: Plain = {
        **({"replication_factor": int(replicas)} if replicas.isdigit() else {}),
        **({"retention_ms": int(retention)} if retention.lstrip("-").isdigit() else {}),
        **({"cleanup_policy": policy} if policy else {}),
    }
    return {
        **partitions_of(partitions),
        **(
            {"compression": compression} if compression in ("gzip", "snappy", "lz4", "zstd") else {}
        ),
        **({"topic_settings": topic_settings} if topic_settings else {}),
    }


def _records(settings: Settings, prefix: str) -> Plain:
    converter = settings.take("value.converter", "format.value", default="json").rpartition(".")[2]
    settings.take("key.converter", "format.key", "header.converter", "format.header")
    has_schemas = settings.take(
        "value.converter.schemas.enable",
        "format.value.json.schemas.enable",
        "format.schemas.enable",
    )
    settings.ignore("key.converter.schemas.enable", "format.key.json.schemas.enable")
    avro = "avro" in converter.lower()
    name = "debezium-avro" if avro else "debezium-json"
    if name not in tuple(FormatName):
        settings.leave(
            "value.converter", converter, "`records`: debezium-json is the nearest format"
        )
        name, avro = "debezium-json", False
    if converter.lower() not in ("json", "jsonconverter", "avro", "avroconverter"):
        settings.leave("value.converter", converter, "`records` of the publish task")
    heartbeats = _heartbeats(settings, prefix)
    if _unwraps(settings):
        settings.take("tombstones.on.delete")
        return {"format": "json", **heartbeats}
    changes = settings.take("include.schema.changes", default="true")
    transactions = settings.take("provide.transaction.metadata", default="false") == "true"
    topic = settings.take("topic.transaction", default="transaction")
    options: Plain = {
        "schemas": None if avro else has_schemas != "false",
        "tombstones": settings.take("tombstones.on.delete", default="true") != "false",
        "transaction_topic": f"{_literal(prefix)}.{topic}" if transactions else None,
        "schema_change_topic": _literal(prefix) if changes != "false" else None,
        "decimal": settings.take("decimal.handling.mode"),
        "time": settings.take("time.precision.mode"),
        "bigint_unsigned": settings.take("bigint.unsigned.handling.mode"),
        "binary": settings.take("binary.handling.mode"),
    }
    defaults: Plain = {"schemas": False, "tombstones": True}
    chosen = {k: v for k, v in options.items() if v not in ("", None) and defaults.get(k) != v}
    return {"format": name, **chosen, **heartbeats}


def _heartbeats(settings: Settings, prefix: str) -> Plain:
    interval = settings.take("heartbeat.interval.ms", default="0")
    topic = settings.take("topic.heartbeat.prefix", default=HEARTBEAT_PREFIX)
    if not interval.isdigit() or not 0 < int(interval) <= HEARTBEAT_MS_MAX:
        if interval != "0":
            settings.leave("heartbeat.interval.ms", interval, "`heartbeat_ms` in `records`")
        return {}
    return {"heartbeat_ms": int(interval), "heartbeat_topic": f"{topic}.{_literal(prefix)}"}


def _unwraps(settings: Settings) -> bool:
    """Whether the only transform is the one that leaves the row alone."""
    transforms = settings.take_list("transforms")
    types = {
        name: settings.take(f"transforms.{name}.type").rpartition(".")[2] for name in transforms
    }
    if list(types.values()) == ["ExtractNewRecordState"]:
        unwrap = f"transforms.{transforms[0]}."
        settings.ignore(
            f"{unwrap}drop.tombstones",
            f"{unwrap}delete.handling.mode",
            f"{unwrap}delete.tombstone.*",
        )
        return True
    for name, kind in types.items():
        settings.leave(f"transforms.{name}", kind, _TRANSFORMS.get(kind, _ANSWERS["transforms"]))
    for name in transforms:
        settings.ignore(f"transforms.{name}.*")
    return False
