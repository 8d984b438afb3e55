"""The publisher's rules removed one by one, judged on a real broker."""

from dataclasses import replace

from millrace.drivers.kafka import errors
from millrace.drivers.kafka.bulk import Bounds, Octets
from millrace.drivers.kafka.errors import Kind
from millrace.drivers.kafka.topic import TopicAdmin, TopicSettings
from millrace.errors import Retryable
from millrace.producer.publish import kafka, opening, tail
from millrace.producer.publish.audit import Audit
from millrace.producer.publish.config import PublisherLimits
from millrace.producer.publish.driver import Transactions
from millrace.producer.publish.opening import Basis, Opener
from millrace.producer.publish.positions import ChangeRecord, progress_after
from millrace.producer.publish.publisher import Publisher
from millrace.schemas.progress import Progress
from tests.kit.publisher.rig import Rig
from tests.mutants.mutant import Mutant, Patch


def an_id_for_every_owner(patch: Patch) -> None:
    """Rule 1 off: no instance fences another."""
    config = Rig.config
    patch.setattr(
        Rig,
        "config",
        lambda rig, epoch: replace(config(rig, epoch), transactional_id=f"{rig.topic}/{epoch}"),
    )


def any_partition_count_will_do(patch: Patch) -> None:
    """Rule 1 off: the publisher writes to the first partition and ignores all others."""
    settings = TopicAdmin.settings

    def one(self: TopicAdmin) -> TopicSettings | None:
        found = settings(self)
        return None if found is None else replace(found, partition_count=1)

    patch.setattr(TopicAdmin, "settings", one)


def reading_uncommitted(patch: Patch) -> None:
    """Rule 2 off: the tail includes uncommitted records."""
    patch.setitem(kafka._READER, "isolation.level", "read_uncommitted")


def epochs_not_compared(patch: Patch) -> None:
    """Rule 2 off: a greater epoch in the tail does not stop an owner."""
    patch.setattr(Opener, "_fenced_by", lambda *_: None)


def no_fence(patch: Patch) -> None:
    """Rule 2 off: no fence record is written before the first rows."""
    patch.setattr(Opener, "_commit_first", lambda *given: (given[-1], 0.0))


def slow_commits_trusted(patch: Patch) -> None:
    """Rule 3 off: an instance is kept after a slow commit."""
    patch.setattr(PublisherLimits, "suspicious_s", float("inf"))


def instance_kept_after_an_error(patch: Patch) -> None:
    """Rule 3 off: after an error the tail is read, but the instance is kept."""

    def ask_only(self: Publisher) -> Progress:
        self.drain()
        self._audit.stop()
        ends = opening.wait_until_stable(self._partition, self._opener.config)
        found = tail.read_tail(self._partition, ends, self._opener.codec)
        assert found is not None
        self._end, self._is_suspicious = ends.stable, False
        self._audit = self._new_audit()
        return found.progress

    patch.setattr(Publisher, "_renew", ask_only)


def sent_again_without_reading_the_tail(patch: Patch) -> None:
    """Rule 3 off: after an error a new instance sends the batch again without reading the tail."""

    def renew_blindly(self: Publisher, unknown: Retryable) -> bool:
        self._renew()
        return False

    patch.setattr(Publisher, "_is_committed_after", renew_blindly)


def fences_answered_with_a_new_instance(patch: Patch) -> None:
    """Rule 3 off: a fence is retried like any other error."""
    spoiled = {
        name: Kind.SPOILED if kind is Kind.FENCED else kind for name, kind in errors.KINDS.items()
    }
    patch.setattr(errors, "KINDS", spoiled)


def ends_not_compared(patch: Patch) -> None:
    """Rule 2 off: the stable end is taken as the end."""
    patch.setattr(opening, "wait_until_stable", lambda partition, _: partition.all_ends())


def refusals_ignored(patch: Patch) -> None:
    """Records that the client refuses are skipped."""

    def add(self: Publisher, transactions: Transactions, buffer: Octets, bounds: Bounds) -> None:
        transactions.add_slices(buffer, bounds)

    patch.setattr(Publisher, "_add", add)


def commits_not_read_back(patch: Patch) -> None:
    """Rule 4 off: no commit is read back."""
    patch.setattr(Audit, "_read_back", lambda *_: None)


def any_row_finishes_its_gtid(patch: Patch) -> None:
    """Rule 5 off: a GTID counts as done after its first row."""

    def hasty(progress: Progress, step: ChangeRecord) -> Progress:
        return progress_after(progress, replace(step, last=True))

    patch.setattr(tail, "progress_after", hasty)


def hints_believed(patch: Patch) -> None:
    """Rule 6 off: the status is believed without comparison."""
    patch.setattr(
        opening,
        "progress_without_tail",
        lambda _, start, hint: start if hint is None else hint.progress,
    )


def empty_topics_begun_at_the_start(patch: Patch) -> None:
    """Rule 6 off: an empty topic begins at the task's start."""
    patch.setattr(opening, "progress_without_tail", lambda *given: given[1])


def hints_forgotten(patch: Patch) -> None:
    """Rule 6 off: the status is ignored."""
    opened = Opener.open
    patch.setattr(Opener, "open", lambda self, basis: opened(self, Basis(basis.start)))


def beginnings_not_checked(patch: Patch) -> None:
    """Rule 2 off: the first records of a topic are not checked."""
    patch.setattr(Opener, "_check_beginning", lambda *_: None)


_FILE = "tests/fault/test_publisher_rules.py"
_LATE = "test_late_request_does_not_end_the_current_transaction"

MUTANTS = [
    Mutant(
        "1 a transactional id of the task's own",
        an_id_for_every_owner,
        _FILE,
        {"test_stale_owner_writes_nothing": "epoch 7 writes after epoch 8"},
    ),
    Mutant(
        "1 the topic has one partition",
        any_partition_count_will_do,
        _FILE,
        {
            "test_foreign_record_in_another_partition_stops_the_task": "a foreign record was not reported"
        },
    ),
    Mutant(
        "2 the tail is read with read_committed",
        reading_uncommitted,
        _FILE,
        {"test_uncommitted_rows_of_dead_owner_are_not_progress": "seq \\d\\d follows seq 9"},
    ),
    Mutant(
        "2 a greater epoch stops us",
        epochs_not_compared,
        _FILE,
        {"test_older_owner_writes_nothing_after_newer_fence": "a stale owner's rows follow"},
    ),
    Mutant(
        "2 a fence is committed first",
        no_fence,
        _FILE,
        {"test_older_owner_writes_nothing_after_newer_fence": "a stale owner's rows follow"},
    ),
    Mutant(
        "2 the stable end is the end",
        ends_not_compared,
        _FILE,
        {"test_nothing_is_written_after_an_open_transaction": "is committed after"},
    ),
    Mutant(
        "2 a topic begins with a run",
        beginnings_not_checked,
        _FILE,
        {"test_publisher_does_not_resume_in_a_recreated_topic": "begins in the middle"},
    ),
    Mutant(
        "3 a slow commit ends its instance",
        slow_commits_trusted,
        _FILE,
        {
            f"{_LATE}[slow_commit-commit]": "sees a part of a batch",
            f"{_LATE}[slow_commit-abort]": "a late abort ended",
        },
    ),
    Mutant(
        "3 an error ends its instance",
        instance_kept_after_an_error,
        _FILE,
        {
            f"{_LATE}[lost_commit_answer-commit]": "sees a part of a batch",
            f"{_LATE}[lost_commit_answer-abort]": "a late abort ended",
        },
    ),
    Mutant(
        "3 after an error the tail is read",
        sent_again_without_reading_the_tail,
        _FILE,
        {"test_lost_commit_answer_leaves_batch_committed_once": "was delivered before"},
    ),
    Mutant(
        "3 a fence is never answered with a new instance",
        fences_answered_with_a_new_instance,
        _FILE,
        {
            "test_fenced_owner_does_not_fence_its_successor": "the successor was fenced by the owner that it had fenced"
        },
    ),
    Mutant(
        "4 every commit is read back",
        commits_not_read_back,
        _FILE,
        {"test_foreign_record_stops_the_task": "a foreign record was not reported"},
    ),
    Mutant(
        "4 rows that an open transaction hides are reported",
        commits_not_read_back,
        _FILE,
        {
            "test_rows_hidden_by_open_transaction_stop_the_task": "hidden committed rows were not reported"
        },
    ),
    Mutant(
        "a row over the limit stops",
        refusals_ignored,
        _FILE,
        {"test_oversized_row_is_not_skipped": "seq \\d follows seq 3"},
    ),
    Mutant(
        "5 a GTID is done with its last row",
        any_row_finishes_its_gtid,
        _FILE,
        {"test_partly_published_source_transaction_is_resumed_inside": "has no last record"},
    ),
    Mutant(
        "6 a hint is believed only at its end",
        hints_believed,
        _FILE,
        {
            "test_removed_records_are_not_published_again[remembered]": "receives records that it has read before"
        },
    ),
    Mutant(
        "6 an emptied topic does not begin again",
        empty_topics_begun_at_the_start,
        _FILE,
        {
            "test_removed_records_are_not_published_again[forgotten]": "receives records that it has read before"
        },
    ),
    Mutant(
        "6 a deleted topic is not created again",
        hints_forgotten,
        _FILE,
        {"test_deleted_topic_is_not_created_again": "a deleted topic is created again"},
    ),
]
