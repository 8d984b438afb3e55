"""Consumer groups of other programs: whether they have members, and the offsets that they have committed.

Guarantees: joins no group and commits nothing. A group that the account may not see is UNKNOWN, never an error; each
wait has a limit.
"""

from collections.abc import Collection, Mapping
from typing import Any

from confluent_kafka import ConsumerGroupState, ConsumerGroupTopicPartitions
from confluent_kafka.admin import AdminClient

from drivers.kafka.access import KafkaAccess, Settings, driver_log
from drivers.kafka.errors import Errors, name_of
from drivers.kafka.partitions import Place
from drivers.kafka.reader import ASK_TIMEOUT_S
from millrace.errors import MillraceError
from schemas.stages import GroupState

_REFUSED = "GROUP_AUTHORIZATION_FAILED"
_MISSING = ("GROUP_ID_NOT_FOUND",)


class Groups:
    """Asks about groups. ``errors``: of the client."""

    def __init__(
        self, brokers: KafkaAccess, *, errors: Errors, timeout_s: float = ASK_TIMEOUT_S
    ) -> None:
        self._errors, self._timeout_s = errors, timeout_s
        settings: Settings = {"logger": driver_log, **brokers.settings()}
        self._client = errors.call("creating an admin client", lambda: AdminClient(settings))

    def states(self, groups: Collection[str]) -> Mapping[str, GroupState]:
        """The state of each group: ACTIVE with members, EMPTY, MISSING or UNKNOWN."""
        if not groups:
            return {}
        doing = "asking for consumer groups"
        answers = self._errors.call(
            doing,
            lambda: self._client.describe_consumer_groups(
                sorted(set(groups)), request_timeout=self._timeout_s
            ),
        )
        states = {name: self._state(answer, doing) for name, answer in answers.items()}
        # a group of the newer protocol (KIP-848) is only in the list
        missing = [name for name, state in states.items() if state is GroupState.MISSING]
        return {**states, **(self._listed(missing) if missing else {})}

    def offsets(self, group: str) -> Mapping[Place, int] | None:
        """The offsets that the group has committed; None if the account may not see it."""
        doing = f"asking for the offsets of the consumer group {group}"
        answers = self._errors.call(
            doing,
            lambda: self._client.list_consumer_group_offsets(
                [ConsumerGroupTopicPartitions(group)], request_timeout=self._timeout_s
            ),
        )
        answer = self._answer(answers[group], doing, allowed=(_REFUSED, *_MISSING))
        if isinstance(answer, str):
            return None if answer == _REFUSED else {}
        return {
            (one.topic, one.partition): int(one.offset)
            for one in answer.topic_partitions
            if one.error is None and one.offset >= 0
        }

    def _state(self, answer: Any, doing: str) -> GroupState:
        described = self._answer(answer, doing, allowed=(_REFUSED, *_MISSING))
        if isinstance(described, str):
            return GroupState.UNKNOWN if described == _REFUSED else GroupState.MISSING
        return _state_of(described.state)

    def _listed(self, names: Collection[str]) -> Mapping[str, GroupState]:
        doing = "asking for all consumer groups"
        answer = self._errors.call(
            doing,
            lambda: self._client.list_consumer_groups(request_timeout=self._timeout_s).result(
                2 * self._timeout_s
            ),
        )
        return {one.group_id: _state_of(one.state) for one in answer.valid if one.group_id in names}

    def _answer(self, answer: Any, doing: str, *, allowed: Collection[str]) -> Any:
        """The result of a future, or the name of an error of these names."""
        try:
            return self._errors.call(doing, lambda: answer.result(2 * self._timeout_s))
        except MillraceError as error:
            if (name := name_of(error)) in allowed:
                return name
            raise


def _state_of(state: ConsumerGroupState) -> GroupState:
    if state is ConsumerGroupState.DEAD:
        return GroupState.MISSING
    return GroupState.EMPTY if state is ConsumerGroupState.EMPTY else GroupState.ACTIVE
