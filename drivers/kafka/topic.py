"""A topic's settings: reads them, and creates the topic with one partition.

Guarantees: each call returns a value or raises an error of its ``Errors``; each wait has a limit.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from confluent_kafka import KafkaError, TopicCollection
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    ClusterMetadata,
    ConfigResource,
    NewTopic,
)

from millrace.drivers.kafka.access import KafkaAccess, Settings, driver_log
from millrace.drivers.kafka.errors import KINDS, Errors, Kind, LastError, name_of
from millrace.drivers.kafka.reader import ASK_TIMEOUT_S
from millrace.errors import MillraceError, Retryable
from millrace.schemas.documents import TopicOptions

CONTACT_S = 5.0  # for the first answer of a broker: a wrong address is reported soon


@dataclass(frozen=True, slots=True)
class TopicSettings:
    """The settings of a topic that decide whether it can be used."""

    partition_count: int
    cleanup_policy: str
    record_bytes_max: int  # max.message.bytes
    replication_factor: int
    min_insync_replicas: int
    retention_ms: int  # -1: records are kept forever

    @property
    def is_compacted(self) -> bool:
        """Whether older records of a key are removed."""
        return "compact" in self.cleanup_policy


class TopicAdmin:
    """Inspects and creates one topic. ``options``: what an operator asks of a new one; ``settings``: librdkafka's."""

    def __init__(
        self,
        brokers: KafkaAccess,
        topic: str,
        *,
        errors: Errors,
        options: TopicOptions | None = None,
        cleanup_policy: str = "delete",
        settings: Settings | None = None,
    ) -> None:
        self._topic, self._errors, self._options = topic, errors, options or TopicOptions()
        self._cleanup_policy = cleanup_policy
        self._bootstrap = brokers.bootstrap
        self._is_reached = False
        self._last_error = LastError()
        own = settings or {}
        everything: Settings = {"logger": driver_log, **brokers.settings(), **own}
        everything["error_cb"] = self._last_error.note
        self._client = errors.call("creating an admin client", lambda: AdminClient(everything))

    def settings(self) -> TopicSettings | None:
        """The topic's settings; None if there is no topic."""
        topic = self._metadata().topics[self._topic]
        if topic.error is not None:
            if topic.error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
                return None
            raise self._errors.error(
                topic.error.name(), topic.error.str(), doing="asking for the topic"
            )
        resource = ConfigResource(ConfigResource.Type.TOPIC, self._topic)
        try:
            config = self._config(resource, "asking for the topic's settings")
        except MillraceError as missing:
            if KINDS.get(name_of(missing)) is Kind.TOPIC_MISSING:  # as some brokers see a new topic
                return None
            raise
        replicas = [len(partition.replicas) for partition in topic.partitions.values()]
        return settings_of(config, replicas)

    def planned(self, record_bytes_max: int) -> TopicSettings:
        """The settings of the topic that ``create`` would make: the document's, else the broker's defaults."""
        broker = next(iter(self._metadata().brokers))
        resource = ConfigResource(ConfigResource.Type.BROKER, str(broker))
        config = self._config(resource, "asking for the defaults")
        options = self._options
        return TopicSettings(
            partition_count=1,
            cleanup_policy=self._cleanup_policy,
            record_bytes_max=record_bytes_max,
            replication_factor=options.replication_factor
            or int(config["default.replication.factor"].value),
            min_insync_replicas=options.min_insync_replicas
            or int(config["min.insync.replicas"].value),
            retention_ms=options.retention_ms or _retention_ms(config),
        )

    def _config(self, resource: ConfigResource, doing: str) -> Mapping[str, Any]:
        config: Mapping[str, Any] = self._errors.call(
            doing,
            lambda: self._client.describe_configs([resource], request_timeout=ASK_TIMEOUT_S)[
                resource
            ].result(ASK_TIMEOUT_S),
        )
        return config

    def _metadata(self) -> ClusterMetadata:
        wait_s = ASK_TIMEOUT_S if self._is_reached else CONTACT_S
        try:
            metadata = self._errors.call(
                "asking for the topic", lambda: self._client.list_topics(self._topic, wait_s)
            )
        except Retryable as away:
            if self._is_reached or KINDS.get(name_of(away)) is not Kind.AWAY:
                raise
            self._client.poll(0)  # serves the errors of its connections
            why = f": {self._last_error.text}" if self._last_error.text else ""
            message = f"no broker answers at {self._bootstrap} within {wait_s:g} s{why}"
            raise Retryable(away.code, message, fix=away.own_fix) from away
        self._is_reached = True
        return metadata

    def create(self, record_bytes_max: int | None = None, *, is_trial: bool = False) -> None:
        """Create the topic with one partition; the broker's defaults hold for settings that ``options`` do not have.
        ``is_trial``: the broker only says whether it would."""
        options = self._options
        config = {"cleanup.policy": self._cleanup_policy}
        if record_bytes_max is not None:
            config["max.message.bytes"] = str(record_bytes_max)
        if options.min_insync_replicas is not None:
            config["min.insync.replicas"] = str(options.min_insync_replicas)
        if options.retention_ms is not None:
            config["retention.ms"] = str(options.retention_ms)
        replicas = -1 if options.replication_factor is None else options.replication_factor
        topic = NewTopic(self._topic, num_partitions=1, replication_factor=replicas, config=config)
        try:
            self._errors.call(
                "creating the topic",
                lambda: self._client.create_topics(
                    [topic], operation_timeout=ASK_TIMEOUT_S, validate_only=is_trial
                )[self._topic].result(ASK_TIMEOUT_S),
            )
        except MillraceError as failure:
            if name_of(failure) != "TOPIC_ALREADY_EXISTS":
                raise

    def operations(self) -> frozenset[str]:
        """The operations on the topic that the account is allowed, such as ``WRITE``."""
        names = TopicCollection([self._topic])
        described = self._errors.call(
            "asking for the permissions",
            lambda: self._client.describe_topics(
                names, include_authorized_operations=True, request_timeout=ASK_TIMEOUT_S
            )[self._topic].result(ASK_TIMEOUT_S),
        )
        return frozenset(operation.name for operation in described.authorized_operations or ())


def settings_of(config: Mapping[str, Any], replicas: Sequence[int]) -> TopicSettings:
    """From a broker's answer about a topic. ``replicas``: how many each partition has."""
    return TopicSettings(
        partition_count=len(replicas),
        cleanup_policy=config["cleanup.policy"].value,
        record_bytes_max=int(config["max.message.bytes"].value),
        replication_factor=min(replicas, default=0),
        min_insync_replicas=int(config["min.insync.replicas"].value),
        retention_ms=int(config["retention.ms"].value),
    )


def _retention_ms(config: Mapping[str, Any]) -> int:
    """The broker's default; the smallest unit that is set counts."""
    for unit, unit_ms in (("ms", 1), ("minutes", 60_000), ("hours", 3_600_000)):
        entry = config.get(f"log.retention.{unit}")
        if entry is not None and entry.value not in (None, ""):
            return max(-1, int(entry.value) * unit_ms)
    return -1
