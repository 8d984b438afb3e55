"""Fields of other tools, and what an author who writes one of them should use here. Pure.

A row answers all its names. Case, dots, hyphens and underscores do not matter: ``server.id`` is ``server_id``. Only
fields of the document itself are looked up, and only those that it does not have. ``docs/limits.md`` has the same
answers.
"""

import re
from collections.abc import Mapping
from types import MappingProxyType

_ANSWERS: tuple[tuple[str, str], ...] = (
    (
        "where filter filters row_filter row_filters predicate predicates condition query binlog_filter"
        " snapshot_select_statement_overrides",
        "`where` in a rule of `tables` (docs/views.md)",
    ),
    (
        "columns column column_filter column_list column_include_list column_exclude_list column_whitelist"
        " column_blacklist exclude_columns include_columns ignore_columns fields",
        "`columns` in a rule of `tables` (docs/views.md)",
    ),
    (
        "mask masks masking column_mask column_mask_hash redact anonymize hash_columns truncate_columns encrypt",
        "`mask` in a rule of `tables` (docs/views.md)",
    ),
    (
        "route routes routing route_rules rename renames rewrite mapping table_mapping table_map schema_map"
        " replicate_rewrite_db target_table target_tables target_database target_schema collection_name_format"
        " table_name_format",
        "`to` in a rule of `tables` (docs/views.md)",
    ),
    (
        "topics topic_prefix topic_per_table topic_naming_strategy topic_name_format table_topic topic_template",
        "`topics` of a publish task: a topic for each table. A capture task writes one `topic` for a whole set",
    ),
    (
        "shards shard shard_merge shard_mode sharding is_sharding",
        "`merge: true` in rules of `tables` of a publish task, for topics. Millrace merges no shards on a target set",
    ),
    (
        "tables table table_list table_include_list table_whitelist do_tables database databases"
        " database_include_list"
        " database_whitelist schema_include_list replicate_do_db replicate_do_table"
        " replicate_wild_do_table white_list"
        " block_allow_list do_dbs schemas whitelist allowlist",
        "`include` of a task: a list of database.table, * and ? stand for any characters",
    ),
    (
        "table_exclude_list table_blacklist database_exclude_list database_blacklist replicate_ignore_db"
        " replicate_ignore_table replicate_wild_ignore_table ignore_tables ignore ignore_dbs black_list blacklist"
        " blocklist denylist skip_tables",
        "`exclude` of a task: a list of database.table, * and ? stand for any characters",
    ),
    (
        "output output_format value_format key_format value_converter key_converter encoding serializer"
        " value_serializer key_serializer serialization json avro protobuf codec protocol envelope flatten",
        "`records` of a publish task: its format, such as debezium-json or avro (docs/formats.md). A set topic has"
        " Avro, always in the layout of docs/record.md",
    ),
    (
        "sink sinks source sources destination connector connector_class connectors plugin type engine"
        " mode_of_sink",
        "`kind`: capture (a set to a Kafka topic), apply (a topic to a set) or publish (a topic to topics for"
        " subscribers). There are no other sources and sinks",
    ),
    (
        "transforms transform transformations smt script scripts udf expression expressions javascript"
        " lua processors"
        " pipeline functions",
        "nothing: Millrace does not transform records. A subscriber of the topic can",
    ),
    (
        "server_id database_server_id serverid",
        "nothing: Millrace derives its server id from the set's name and avoids ids in use",
    ),
    ("server_name database_server_name name id", "`set` or `task`: the name of the document"),
    (
        "snapshot_mode initial_load full_load bootstrap_mode task_mode dump copy_existing backfill",
        "`start: load` of an apply task copies existing rows to its target;"
        " `snapshot` of a capture task publishes them in the topic",
    ),
    (
        "snapshot_locking_mode locking snapshot_isolation_mode snapshot_fetch_size incremental_snapshot"
        " incremental_snapshot_chunk_size signal_data_collection signal_enabled_channels chunk_size dump_threads",
        "`snapshot` and `snapshot_limits` of a capture task, `load` of an apply task",
    ),
    (
        "gtid gtids gtid_set gtid_source_includes gtid_source_excludes binlog_file binlog_name binlog_pos"
        " binlog_position position positions offset offsets start_position from meta from_gtid starting_position",
        "`start`: first, a GTID set, or load (apply)",
    ),
    (
        "host hosts hostname port database_hostname database_port address addresses url uri jdbc_url connection"
        " connection_url dsn replicas primary servers endpoint endpoints",
        "`members` of a set: a list of {host: …, port: …}, the primary and its replicas",
    ),
    ("username database_user connection_username account login", "`user` of a set"),
    (
        "database_password connection_password pass passwd secret",
        "`password` of a set: env:NAME, file:/path or exec:/program",
    ),
    ("ssl ssl_mode sslmode database_ssl_mode ssl_ca ssl_verify", "`tls` and `tls_ca`"),
    (
        "bootstrap bootstrap_servers brokers broker kafka_brokers kafka_bootstrap_servers"
        " producer_bootstrap_servers",
        '`kafka`: {bootstrap: "host:9092"}',
    ),
    (
        "schema_registry schema_registry_url registry_url value_converter_schema_registry_url"
        " apicurio_registry_url",
        "`registry`: its URL",
    ),
    (
        "tasks_max parallelism workers worker_count threads concurrency max_parallelism slave_parallel_workers"
        " replica_parallel_workers connection_pool_size connections",
        "`lanes` of an apply task: its parallel connections to the target. Capture needs none",
    ),
    (
        "batch_size max_batch_size batch max_queue_size poll_interval_ms linger_ms flush_interval_ms buffer_size"
        " queue_size rate_limit throttle compression compression_type acks",
        "nothing: Millrace sizes its batches itself",
    ),
    (
        "partitions partition num_partitions partition_count partition_key partitioner"
        " message_key_columns message_key",
        "`partitions` and `partition_by` of a publish task. A set topic has one partition, so that its order is the"
        " source's commit order",
    ),
    (
        "replication_factor topic_creation topic_config retention retention_ms min_insync_replicas",
        "`topic_settings` of a capture or publish task",
    ),
    (
        "ddl skip_ddl include_schema_changes schema_changes schema_evolution auto_evolve auto_create"
        " create_tables"
        " ignore_ddl enable_ddl",
        "nothing: DDL statements are always in the topic, and an apply task executes those of its tables",
    ),
    (
        "skipped_operations operations ops only_operations skip_deletes ignore_delete event_types delete_enabled"
        " soft_delete tombstones_on_delete tombstones truncate_enabled",
        "`tombstones` in `records` of a publish task. Inserts, updates and deletes are all copied",
    ),
    (
        "decimal_handling_mode time_precision_mode binary_handling_mode bigint_unsigned_handling_mode"
        " time_zone timezone"
        " connection_timezone database_connectiontimezone",
        "`decimal`, `time`, `binary` and `bigint_unsigned` in `records` of a publish task",
    ),
    (
        "errors_tolerance error_policy on_error errors error_handling dead_letter_queue dlq"
        " errors_deadletterqueue_topic_name"
        " skip_errors slave_skip_errors replica_skip_errors on_conflict conflict_resolution max_retries retries",
        "`conflict` of an apply task: stop, overwrite or skip, for a change that does not fit the target's row",
    ),
    (
        "primary_key primary_keys pk pk_mode pk_fields primary_key_mode primary_key_fields key keys"
        " record_key insert_mode"
        " write_mode upsert",
        "nothing: the target table's own keys are used",
    ),
    (
        "heartbeat_interval_ms heartbeat_interval heartbeat_action_query",
        "`heartbeat` of a set: {database: ops, interval_s: 10}",
    ),
    (
        "schedule cron interval every",
        "nothing: tasks run always; `compare: {every_h: 24}` of an apply task compares at this interval",
    ),
    ("labels zone tags node_selector", "`placement`: {labels: {zone: a}}"),
    (
        "views view triggers trigger routines routine procedures events users",
        "nothing: their statements are in the topic, and an apply task does not execute them",
    ),
)


def _key(name: str) -> str:
    return re.sub(r"[.\-\s]+", "_", name.strip().lower())


def _by_name() -> Mapping[str, str]:
    """A name with two answers fails the import."""
    found: dict[str, str] = {}
    for name, answer in ((name, answer) for names, answer in _ANSWERS for name in names.split()):
        if name in found or name != _key(name):
            raise ValueError(f"the foreign field {name} is declared twice, or in another spelling")
        found[name] = answer
    return MappingProxyType(found)


FOREIGN = _by_name()


def foreign_answer(name: str) -> str:
    """The field to use instead, or why there is none; "" for a name that no other tool has."""
    return FOREIGN.get(_key(name), "")
