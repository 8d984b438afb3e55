"""Canal 1.1: ``instance.properties``, with ``canal.properties`` beside it for the brokers.

An instance becomes a set, a capture task and a publish task with Canal's flat JSON.
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
    partitions_of,
    password_of,
    port_of,
    registry_of,
    tables,
    tables_of,
)
from millrace.schemas.view.format_options import FormatName

_ANSWERS: Mapping[str, str] = MappingProxyType(
    {
        "canal.instance.rds.": "nothing in this version: binlogs are read from the server alone",
        "canal.aliyun.": "nothing: binlogs are read from the server alone",
        "canal.instance.master.": "`start`: first or a GTID set; other members have other files and positions",
        "canal.instance.standby.": "nothing: the members of a set are found by GTID",
        "canal.instance.master.ssl": "`tls` and `tls_ca` of the set",
        "canal.instance.master.trust": "`tls_ca` of the set: a PEM file",
        "canal.instance.master.client": "nothing: Millrace logs in with a password",
        "canal.instance.multi.stream.on": "nothing: PolarDB-X is not a source",
        "canal.instance.enableDruid": "`password` of the set: env:NAME, file:/path or exec:/program",
        "canal.instance.pwdPublicKey": "`password` of the set: exec:/program may decrypt it",
        "canal.instance.filter.dml.": "nothing: a publish task has every change of its tables",
        "canal.instance.filter.query.": "nothing: the set topic has every statement",
        "canal.mq.partition": "`partitions` and `partition_by`; no record is sent to a partition of a fixed number",
        "canal.mq.partitionHash": "`partition_by`: columns of the key, by the table's name in the view",
        "canal.mq.dynamicTopicPartitionNum": "nothing: all topics of a task have the same number of `partitions`",
        "canal.mq.enableDynamicQueuePartition": "`partitions`",
        "canal.mq.dynamicTopic": "`topics`: a name with {database} and {table}. Other names need a separate task",
        "canal.mq.flatMessage": "nothing: Canal's protobuf is not written",
        "kafka.security.protocol": "`kafka`: tls and sasl",
        "kafka.sasl.": "`kafka`: sasl",
        "kafka.ssl.": "`kafka`: tls_ca, tls_cert and tls_key",
        "kafka.kerberos.": "nothing: Kerberos is not supported",
        "canal.serverMode": "`kafka`: Millrace writes to Kafka alone",
        "canal.destinations": "one call of millrace import for each instance",
    }
)
_NEEDLESS = (
    "canal.instance.mysql.slaveId",
    "canal.instance.gtidon",
    "canal.instance.tsdb*",
    "canal.instance.connectionCharset",
    "canal.instance.defaultDatabaseName",
    "canal.instance.memory*",
    "canal.instance.network*",
    "canal.instance.parser*",
    "canal.instance.transaction*",
    "canal.instance.fallback*",
    "canal.instance.global*",
    "canal.instance.get.ddl*",
    "canal.instance.binlog*",
    "canal.instance.spring*",
    "canal.instance.detecting*",
    "canal.instance.filter.druid*",
    "canal.instance.filter.table.error",
    "canal.instance.filter.rows",
    "canal.instance.filter.transaction*",
    "canal.ip",
    "canal.id",
    "canal.register*",
    "canal.port",
    "canal.user",
    "canal.passwd",
    "canal.admin*",
    "canal.metrics*",
    "canal.zk*",
    "canal.zookeeper*",
    "canal.withoutNetty",
    "canal.file*",
    "canal.conf*",
    "canal.auto*",
    "canal.mq.canalBatchSize",
    "canal.mq.canalGetTimeout",
    "canal.mq.accessChannel",
    "canal.mq.database.hash",
    "canal.mq.send*",
    "canal.mq.build*",
    "canal.mq.servers",
    "canal.mq.retries",
    "canal.mq.batchSize",
    "canal.mq.maxRequestSize",
    "canal.mq.lingerMs",
    "canal.mq.bufferMemory",
    "canal.mq.acks",
    "canal.mq.vhost",
    "kafka.acks",
    "kafka.batch.size",
    "kafka.linger.ms",
    "kafka.max*",
    "kafka.buffer.memory",
    "kafka.retries",
    "rocketmq*",
    "rabbitmq*",
    "pulsarmq*",
)


def draft_of_canal(values: Mapping[str, str]) -> Draft:
    """The documents of one instance."""
    settings = Settings(values)
    draft = Draft("Canal")
    mode = settings.take("canal.serverMode", default="kafka")
    if mode != "kafka":
        settings.leave("canal.serverMode", mode, _ANSWERS["canal.serverMode"])
    if settings.take("kafka.kerberos.enable") != "true":
        settings.ignore("kafka.kerberos*")
    # canal.properties of the distribution names one instance of the same name
    destination = settings.take("canal.destinations", "canal.instance.destination", default="canal")
    source = name_of(destination if "," not in destination else "canal", "source")
    kafka = brokers_of(settings.take("kafka.bootstrap.servers", "canal.mq.servers"), settings)
    shared = SetTopic(f"{source}.set", kafka, registry_of("", settings))
    set_document = _set(settings, source)
    gtid = settings.take("canal.instance.master.gtid")
    draft.documents = [
        set_document,
        shared.capture(
            f"{source}-capture",
            source,
            {**({"start": gtid} if gtid else {}), **_tables(settings)},
        ),
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
    addresses = [
        settings.take(f"canal.instance.{role}.address", default=default)
        for role, default in (("master", "localhost:3306"), ("standby", ""))
    ]
    members = []
    for address in filter(None, addresses):
        host, _, port = address.rpartition(":") if ":" in address else (address, "", "3306")
        members.append({"host": host, "port": port_of(port)})
    mode = settings.take("canal.instance.master.sslMode")
    return {
        "set": name,
        "members": members,
        "user": settings.take("canal.instance.dbUsername", default="canal"),
        "password": password_of(settings.take("canal.instance.dbPassword"), name, settings),
        **({"tls": TLS_MODES.get(mode, mode)} if mode else {}),
    }


def _tables(settings: Settings) -> Plain:
    include, exclude = (
        tables_of(name, settings.take_list(name), settings)
        for name in ("canal.instance.filter.regex", "canal.instance.filter.black.regex")
    )
    is_chosen = settings.is_left("canal.instance.filter.regex")
    return tables([each for each in include if each != "*.*"], exclude, is_chosen=is_chosen)


def _topics(settings: Settings) -> Plain:
    """A table each, or all in one topic, which needs rules that say so."""
    rules = _columns(settings, "canal.instance.filter.field", "keep")
    rules += _columns(settings, "canal.instance.filter.black.field", "drop")
    name = "canal.mq.dynamicTopic"
    dynamic = settings.take(name)
    topic = settings.take("canal.mq.topic", default="canal")
    partitions = settings.take("canal.mq.partitionsNum")
    compression = settings.take("kafka.compression.type", "canal.mq.compressionType")
    settings.take("canal.mq.partition")
    columns = [part for part in settings.take_list("canal.mq.partitionHash") if not _is_whole(part)]
    for part in columns:
        settings.leave("canal.mq.partitionHash", part, _ANSWERS["canal.mq.partitionHash"])
    is_dynamic = bool(re.fullmatch(r"\.\*(\\?\.|\\\\\.)\.\*", dynamic))
    if dynamic and not is_dynamic:
        settings.leave(name, dynamic, _ANSWERS[name])
    if rules or not is_dynamic:
        rules.append({"from": "*.*"})
    if not is_dynamic:
        for rule in rules:
            rule["merge"] = True
    return {
        **({"tables": rules} if rules else {}),
        "topics": "{database}_{table}" if is_dynamic else topic,
        **partitions_of(partitions),
        **(
            {"compression": compression} if compression in ("gzip", "snappy", "lz4", "zstd") else {}
        ),
    }


def _is_whole(part: str) -> bool:
    """Whether a rule of ``partitionHash`` means the key of the table, or all tables."""
    return part.endswith(":$pk$") or ":" not in part


def _columns(settings: Settings, name: str, word: str) -> list[Plain]:
    """``schema.table:column/column`` as rules."""
    rules: list[Plain] = []
    for part in settings.take_list(name):
        table, colon, columns = part.partition(":")
        if not colon or "." not in table:
            settings.leave(name, part, "`columns` of a rule in `tables`")
            continue
        rules.append({"from": table, "columns": {word: columns.split("/")}})
    return rules


def _records(settings: Settings) -> Plain:
    flat = settings.take("canal.mq.flatMessage", default="true")
    if flat != "true":
        settings.leave("canal.mq.flatMessage", flat, _ANSWERS["canal.mq.flatMessage"])
    return {"format": FormatName.CANAL_JSON.value}
