"""Consumer groups of other programs: whether they have members, and the offsets that they have committed.

Guarantees: joins no group and commits nothing. A group that the account may not see is no error; each wait has a limit.

The admin requests that go to a group's coordinator (DescribeConsumerGroups, ListConsumerGroupOffsets) are not used: if
the connection breaks meanwhile, librdkafka 2.16 ends the process (its issue 4605). The list of all groups comes from
every broker, and the offsets from a consumer that never joins.
"""

from collections.abc import Collection, Mapping
from contextlib import closing

from confluent_kafka import Consumer, ConsumerGroupState, TopicPartition
from confluent_kafka.admin import AdminClient

from millrace.drivers.kafka.access import KafkaAccess, Settings, driver_log
from millrace.drivers.kafka.errors import Errors, name_of
from millrace.drivers.kafka.partitions import Place
from millrace.drivers.kafka.reader import ASK_TIMEOUT_S
from millrace.errors import MillraceError
from millrace.schemas.stages import GroupState

_REFUSED = "GROUP_AUTHORIZATION_FAILED"
_ERROR_S = 1.0  # a client reports why it finds no coordinator as an event


class Groups:
    """Asks about groups. ``errors``: of the client."""

    def __init__(
        self, brokers: KafkaAccess, *, errors: Errors, timeout_s: float = ASK_TIMEOUT_S
    ) -> None:
        self._errors, self._timeout_s = errors, timeout_s
        self._settings: Settings = {
            "logger": driver_log,
            **brokers.settings(),
            "enable.auto.commit": False,
        }

    def states(self) -> Mapping[str, GroupState]:
        """ACTIVE with members, or EMPTY: each group that the account sees, of either protocol."""
        settings = {**self._settings}
        settings.pop("enable.auto.commit")
        client = self._errors.call("creating an admin client", lambda: AdminClient(settings))
        answer = self._errors.call(
            "asking for all consumer groups",
            lambda: client.list_consumer_groups(request_timeout=self._timeout_s).result(
                2 * self._timeout_s
            ),
        )
        return {one.group_id: _state_of(one.state) for one in answer.valid}

    def offsets(self, group: str, places: Collection[Place]) -> Mapping[Place, int] | None:
        """The offsets that the group has committed of these; None if the account may not see it."""
        if not places:
            return {}
        settings: Settings = {**self._settings, "group.id": group}
        consumer = self._errors.call("creating a consumer", lambda: Consumer(settings))
        with closing(consumer):
            wanted = [TopicPartition(*place) for place in places]
            try:
                found = self._errors.call(
                    f"asking for the offsets of the consumer group {group}",
                    lambda: consumer.committed(wanted, timeout=self._timeout_s),
                )
            except MillraceError as error:
                if name_of(error) == _REFUSED or _is_refused(consumer):
                    return None
                raise
        return {
            (one.topic, one.partition): int(one.offset)
            for one in found
            if one.error is None and one.offset >= 0
        }


def _is_refused(consumer: Consumer) -> bool:
    """Whether the account may not ask for the coordinator. The request itself then ends without an answer."""
    message = consumer.poll(_ERROR_S)
    error = None if message is None else message.error()
    return error is not None and error.name() == _REFUSED


def _state_of(state: ConsumerGroupState) -> GroupState:
    return GroupState.EMPTY if state is ConsumerGroupState.EMPTY else GroupState.ACTIVE
