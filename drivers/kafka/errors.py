"""Every error that librdkafka or a broker can report: its kind, and what happens next. One table for all clients.

    kind             branch     when
    AWAY             Retryable  the broker, or something that it needs, is unavailable
    SPOILED          Retryable  the client is unusable or the outcome unknown: a new client finds out
    FENCED           Fenced     a newer producer of the same transactional ID exists
    TOPIC_MISSING    Retryable  the topic does not exist, or not yet
    TOPIC_REPLACED   Retryable  the name has another topic now
    OFFSET_REMOVED   Fatal      the partition has no record at the offset, and no later one is read by itself
    OVERSIZE         Fatal      a record is over the limit
    UNAUTHORIZED     Fatal      delegation tokens, principals
    UNSUPPORTED      Fatal      the broker or the client refuses a setting or has no such feature
    GROUP            Fatal      answers to a member of a consumer group
    UNEXPECTED       Fatal      an error that our clients never expect
    REFUSED          ``REFUSALS``: logins, certificates, rights; their codes are the same for all clients

Each client gives a kind its code (``Errors``), and another branch only where the table beside it says why.

Guarantees: each name is in one row only, and all names of the driver in use are in the table (a test compares). An
unknown name is UNEXPECTED: new errors stop a task instead of being treated as harmless.

A fatal error of librdkafka can hide. confluent_kafka sets a ``KafkaException`` while it serves callbacks. If it then
serves a log callback, CPython finds an exception set although the call returned a value. It raises SystemError with
the original as its cause, or clears the original. ``Errors.call`` finds it.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum, auto
from types import MappingProxyType
from typing import TypeVar

from confluent_kafka import KafkaError, KafkaException

from millrace.errors import Fatal, Fenced, MillraceError, Retryable

T = TypeVar("T")


class Kind(Enum):
    AWAY = auto()
    SPOILED = auto()
    FENCED = auto()
    TOPIC_MISSING = auto()
    TOPIC_REPLACED = auto()
    OFFSET_REMOVED = auto()
    OVERSIZE = auto()
    UNAUTHORIZED = auto()
    UNSUPPORTED = auto()
    GROUP = auto()
    UNEXPECTED = auto()
    REFUSED = auto()


BRANCHES: Mapping[Kind, type[MillraceError]] = MappingProxyType(
    dict.fromkeys(Kind, Fatal)
    | dict.fromkeys((Kind.AWAY, Kind.SPOILED, Kind.TOPIC_MISSING, Kind.TOPIC_REPLACED), Retryable)
    | {Kind.FENCED: Fenced}
)
REFUSALS: Mapping[str, tuple[str, type[MillraceError]]] = MappingProxyType(
    {
        "_AUTHENTICATION": ("MR-7001", Retryable),
        "SASL_AUTHENTICATION_FAILED": ("MR-7001", Retryable),
        "_SSL": ("MR-7002", Retryable),
        "UNSUPPORTED_SASL_MECHANISM": ("MR-7006", Retryable),
        "ILLEGAL_SASL_STATE": ("MR-7006", Retryable),
        "TOPIC_AUTHORIZATION_FAILED": ("MR-7010", Fatal),
        "TRANSACTIONAL_ID_AUTHORIZATION_FAILED": ("MR-7011", Fatal),
        "CLUSTER_AUTHORIZATION_FAILED": ("MR-7012", Fatal),
        "GROUP_AUTHORIZATION_FAILED": ("MR-7013", Fatal),
    }
)
_NAMES = {
    # An admin client reports _NOENT for a partition without a leader. A broker reports INVALID_REPLICATION_FACTOR while
    # fewer brokers are up than a new topic needs.
    Kind.AWAY: """
_TRANSPORT _RESOLVE _ALL_BROKERS_DOWN _TIMED_OUT _TIMED_OUT_QUEUE _WAIT_COORD _WAIT_CACHE _NODE_UPDATE _ISR_INSUFF
_UNKNOWN_BROKER _DESTROY_BROKER _CRIT_SYS_RESOURCE _MSG_TIMED_OUT _RETRY _INTR _OUTDATED LEADER_NOT_AVAILABLE
NOT_LEADER_FOR_PARTITION REQUEST_TIMED_OUT BROKER_NOT_AVAILABLE REPLICA_NOT_AVAILABLE STALE_CTRL_EPOCH
NETWORK_EXCEPTION COORDINATOR_LOAD_IN_PROGRESS COORDINATOR_NOT_AVAILABLE NOT_COORDINATOR NOT_ENOUGH_REPLICAS
NOT_ENOUGH_REPLICAS_AFTER_APPEND NOT_CONTROLLER KAFKA_STORAGE_ERROR LOG_DIR_NOT_FOUND LISTENER_NOT_FOUND
FENCED_LEADER_EPOCH UNKNOWN_LEADER_EPOCH STALE_BROKER_EPOCH OFFSET_NOT_AVAILABLE PREFERRED_LEADER_NOT_AVAILABLE
ELIGIBLE_LEADERS_NOT_AVAILABLE THROTTLING_QUOTA_EXCEEDED REASSIGNMENT_IN_PROGRESS FETCH_SESSION_ID_NOT_FOUND
INVALID_FETCH_SESSION_EPOCH REBOOTSTRAP_REQUIRED UNKNOWN_CONTROLLER_ID _NOENT INVALID_REPLICATION_FACTOR
""",
    Kind.SPOILED: """
_FAIL _STATE _INCONSISTENT _GAPLESS_GUARANTEE _PURGE_QUEUE _PURGE_INFLIGHT _DESTROY _IN_PROGRESS _PREV_IN_PROGRESS
_CONFLICT _PARTIAL _UNDERFLOW _QUEUE_FULL _BAD_MSG _FATAL UNKNOWN INVALID_MSG OUT_OF_ORDER_SEQUENCE_NUMBER
DUPLICATE_SEQUENCE_NUMBER INVALID_TXN_STATE INVALID_PRODUCER_ID_MAPPING CONCURRENT_TRANSACTIONS UNKNOWN_PRODUCER_ID
TRANSACTION_COORDINATOR_FENCED TRANSACTION_ABORTABLE OPERATION_NOT_ATTEMPTED
""",
    Kind.FENCED: "_FENCED INVALID_PRODUCER_EPOCH PRODUCER_FENCED",
    Kind.TOPIC_MISSING: "_UNKNOWN_TOPIC _UNKNOWN_PARTITION UNKNOWN_TOPIC_OR_PART",
    Kind.TOPIC_REPLACED: "UNKNOWN_TOPIC_ID INCONSISTENT_TOPIC_ID",
    Kind.OFFSET_REMOVED: "_AUTO_OFFSET_RESET",
    Kind.OVERSIZE: "MSG_SIZE_TOO_LARGE RECORD_LIST_TOO_LARGE INVALID_MSG_SIZE",
    Kind.UNAUTHORIZED: """
SECURITY_DISABLED DELEGATION_TOKEN_AUTH_DISABLED DELEGATION_TOKEN_NOT_FOUND DELEGATION_TOKEN_OWNER_MISMATCH
DELEGATION_TOKEN_REQUEST_NOT_ALLOWED DELEGATION_TOKEN_AUTHORIZATION_FAILED DELEGATION_TOKEN_EXPIRED
INVALID_PRINCIPAL_TYPE UNACCEPTABLE_CREDENTIAL PRINCIPAL_DESERIALIZATION_FAILURE
""",
    Kind.UNSUPPORTED: """
_INVALID_ARG _UNSUPPORTED_FEATURE _UNKNOWN_PROTOCOL _NOT_IMPLEMENTED _NOT_CONFIGURED _BAD_COMPRESSION _INVALID_TYPE
TOPIC_EXCEPTION INVALID_REQUIRED_ACKS INVALID_TIMESTAMP UNSUPPORTED_VERSION INVALID_PARTITIONS
INVALID_REPLICA_ASSIGNMENT INVALID_CONFIG INVALID_REQUEST UNSUPPORTED_FOR_MESSAGE_FORMAT POLICY_VIOLATION
INVALID_TRANSACTION_TIMEOUT UNSUPPORTED_COMPRESSION_TYPE INVALID_RECORD TOPIC_DELETION_DISABLED
MISMATCHED_ENDPOINT_TYPE UNSUPPORTED_ENDPOINT_TYPE
""",
    Kind.GROUP: """
_UNKNOWN_GROUP _EXISTING_SUBSCRIPTION _ASSIGN_PARTITIONS _REVOKE_PARTITIONS _NO_OFFSET _MAX_POLL_EXCEEDED
_ASSIGNMENT_LOST OFFSET_METADATA_TOO_LARGE ILLEGAL_GENERATION INCONSISTENT_GROUP_PROTOCOL INVALID_GROUP_ID
UNKNOWN_MEMBER_ID INVALID_SESSION_TIMEOUT REBALANCE_IN_PROGRESS INVALID_COMMIT_OFFSET_SIZE NON_EMPTY_GROUP
GROUP_ID_NOT_FOUND MEMBER_ID_REQUIRED GROUP_MAX_SIZE_REACHED FENCED_INSTANCE_ID GROUP_SUBSCRIBED_TO_TOPIC
UNSTABLE_OFFSET_COMMIT FENCED_MEMBER_EPOCH UNRELEASED_INSTANCE_ID UNSUPPORTED_ASSIGNOR STALE_MEMBER_EPOCH
""",
    # Share groups, quorum voters, serializers: none of our clients sends the requests that these answer.
    Kind.UNEXPECTED: """
NO_ERROR _PARTITION_EOF _FS _KEY_SERIALIZATION _VALUE_SERIALIZATION _KEY_DESERIALIZATION _VALUE_DESERIALIZATION
_READ_ONLY _APPLICATION _NOOP _LOG_TRUNCATION _INVALID_DIFFERENT_RECORD OFFSET_OUT_OF_RANGE
TOPIC_ALREADY_EXISTS ELECTION_NOT_NEEDED NO_REASSIGNMENT_IN_PROGRESS RESOURCE_NOT_FOUND DUPLICATE_RESOURCE
INCONSISTENT_VOTER_SET INVALID_UPDATE_VERSION FEATURE_UPDATE_FAILED UNKNOWN_SUBSCRIPTION_ID TELEMETRY_TOO_LARGE
INVALID_REGISTRATION INVALID_RECORD_STATE SHARE_SESSION_NOT_FOUND INVALID_SHARE_SESSION_EPOCH FENCED_STATE_EPOCH
INVALID_VOTER_KEY DUPLICATE_VOTER VOTER_NOT_FOUND INVALID_REGULAR_EXPRESSION STREAMS_INVALID_TOPOLOGY
STREAMS_INVALID_TOPOLOGY_EPOCH STREAMS_TOPOLOGY_FENCED SHARE_SESSION_LIMIT_REACHED
""",
    Kind.REFUSED: " ".join(REFUSALS),
}
KINDS = {name: kind for kind, names in _NAMES.items() for name in names.split()}
assert len(KINDS) == sum(len(names.split()) for names in _NAMES.values()), "a name is in two rows"

SILENCE = "_TIMED_OUT"  # of a broker that accepts a request and never answers
FATAL, LOST = "_FATAL", "the client lost the text of a fatal error"
_CLEARED = "without setting an exception"
_DAMAGED = "_BAD_MSG"  # a batch whose checksum is wrong; the client continues after it
_DAMAGE_FIX = (
    "The bytes are not those that were written: check the disk and the memory of the partition's leader. If another"
    " replica has them, make it the leader, for example with `kafka-reassign-partitions.sh`."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Errors:
    """The errors of one client. ``code``: of each kind that ``codes`` does not have."""

    code: str
    codes: Mapping[Kind, str] = field(default_factory=dict)
    branches: Mapping[Kind, type[MillraceError]] = field(default_factory=dict)
    away_fix: str = ""

    def error(self, name: str, detail: str, *, doing: str) -> MillraceError:
        """The error to raise for librdkafka's error ``name`` while ``doing`` something."""
        message = f"Kafka reported {name} while {doing}: {detail}"
        kind = KINDS.get(name, Kind.UNEXPECTED)
        if kind is Kind.REFUSED:
            code, branch = REFUSALS[name]
            return branch(code, message)
        branch = self.branches.get(kind, BRANCHES[kind])
        fix = _DAMAGE_FIX if name == _DAMAGED else self.away_fix if kind is Kind.AWAY else ""
        return branch(self.codes.get(kind, self.code), message, fix=fix)

    def call(self, doing: str, ask: Callable[[], T]) -> T:
        """The result of ``ask``. An error of the driver, or a missing answer, is raised as a Millrace error."""
        try:
            return ask()
        except KafkaException as failure:
            raise self._reported(failure, doing) from failure
        except SystemError as lost:
            hidden = _hidden_by(lost)
            if hidden is not None:
                raise self._reported(hidden, doing) from hidden
            if _CLEARED not in str(lost):  # nothing else in a call ends so
                raise
            raise self.error(FATAL, LOST, doing=doing) from lost
        except TimeoutError as silence:  # raised by a future
            raise self.error(SILENCE, "no broker answered", doing=doing) from silence

    def _reported(self, failure: KafkaException, doing: str) -> MillraceError:
        reported = failure.args[0]
        return self.error(reported.name(), reported.str(), doing=doing)


@dataclass(slots=True)
class LastError:
    """The client's last error about its connections, for messages. It refers to no client, so it ends
    with its owner, in that thread, and not with a collection of garbage in any."""

    text: str = ""

    def note(self, reported: KafkaError) -> None:
        """Note the error; of several, the one that names an address."""
        if reported.code() != KafkaError._ALL_BROKERS_DOWN or not self.text:
            self.text = reported.str()


def name_of(error: MillraceError) -> str:
    """The name of the driver's error that ``Errors.call`` has translated; "" if it was none."""
    cause = error.__cause__
    if isinstance(cause, TimeoutError):
        return SILENCE
    return str(cause.args[0].name()) if isinstance(cause, KafkaException) else ""


def refusal_of(name: str, message: str) -> MillraceError | None:
    """The error for the client's error ``name``; None if it is no refusal."""
    if name not in REFUSALS:
        return None
    code, branch = REFUSALS[name]
    return branch(code, message)


def _hidden_by(error: BaseException | None) -> KafkaException | None:
    while isinstance(error, SystemError):
        error = error.__cause__
    return error if isinstance(error, KafkaException) else None
