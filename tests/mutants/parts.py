"""Guards that need no server, removed one by one."""

import re
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import yaml

from millrace.consumer.spark import session as driver
from millrace.consumer.target import fence
from millrace.consumer.target.progress import Owner, delete_applied, delete_earlier
from millrace.consumer.task import runner
from millrace.consumer.topic.decode import TopicLookUp
from millrace.consumer.topic.verify import Check, TopicVerifier
from millrace.consumer.window import window
from millrace.consumer.write import target_transaction
from millrace.deploy.servers import process
from millrace.drivers.mysql import grants, members
from millrace.drivers.mysql.connection import MySqlSession
from millrace.errors import Fatal
from millrace.producer.publish.audit import Audit
from millrace.producer.relay import layout, reader
from millrace.producer.relay.notes import SubdirNotes
from millrace.producer.relay.reader import RelayReader
from millrace.producer.relay.writer import RelayLog
from millrace.producer.source.choose import choice, judge
from millrace.producer.source.set_streams import Upstreams
from millrace.registry import service
from millrace.schemas.documents import text as document_text
from millrace.schemas.place import Coordinates
from millrace.zk.client.session import Change
from millrace.zk.lease.election import LeaderTerm
from millrace.zk.tree.reports import SavedReport
from tests.kit.equal_to_all import AnyText
from tests.mutants.mutant import Mutant, Patch

NOT_RAISED = r"DID NOT RAISE (Fatal|Retryable)"


def first_row_not_checked(patch: Patch) -> None:
    """The first row of a window need not follow the mark."""
    patch.setattr(window, "check_follows", lambda *_: None)


def gaps_between_rows_not_checked(patch: Patch) -> None:
    """Only the first row is checked."""
    check = window._check_seqs
    patch.setattr(window, "_check_seqs", lambda seqs, *given: check(seqs[:1], *given))


def resolved_records_not_checked(patch: Patch) -> None:
    """A resolved record moves the mark past missing rows."""
    patch.setattr(window, "_check_repeated", lambda *_: None)


def topic_ids_not_compared(patch: Patch) -> None:
    """Topics are compared by name only."""
    patch.setattr(runner, "same_topic", lambda _, mark, **__: mark)


def gtid_sets_not_compared(patch: Patch) -> None:
    """Only the seq is compared."""
    patch.setattr(window, "_check_positions", lambda *_: None)


def starts_not_proven(patch: Patch) -> None:
    """A task that starts at a GTID set accepts any first record of the topic as the next one."""
    patch.setattr(window, "_check_begin", lambda *_: None)


def answers_not_counted(patch: Patch) -> None:
    """The first answer to an order counts."""
    patch.setattr(driver, "len", lambda _: 1, raising=False)


def owner_before_not_compared(patch: Patch) -> None:
    """Any execution of a turn takes the fence."""
    raise_ = fence._raise
    patch.setattr(fence, "_raise", lambda session, after: raise_(session, replace(after, run=-1)))


def bitmaps_above_the_mark_deleted(patch: Patch) -> None:
    """Every move of the mark deletes the bitmaps of all earlier turns."""

    def forget(session: MySqlSession, owner: Owner, *, through: int) -> None:
        delete_applied(session, owner, through=through)
        delete_earlier(session, owner)

    patch.setattr(target_transaction, "delete_applied", forget)


def missing_files_not_noticed(patch: Patch) -> None:
    """The search for a start position skips a missing file."""
    patch.setattr(RelayReader, "_is_continuous", lambda *_: True)


def lag_not_judged(patch: Patch) -> None:
    """A stream stays with a member that lags."""
    patch.setattr(judge, "_find_lag", lambda *_: None)


def late_members_accepted(patch: Patch) -> None:
    """A running stream may continue on a member that misses received transactions."""
    patch.setattr(choice, "beyond", lambda *_: "")


def lost_tails_not_noticed(patch: Patch) -> None:
    """A reader continues into a sub-directory whose server did not have the end of the former one."""
    patch.setattr(SubdirNotes, "is_apart", lambda *_: False)


def repeated_file_numbers_not_noticed(patch: Patch) -> None:
    """File numbers are compared without their server."""
    patch.setattr(reader, "has_same_sequence_from_other_server", lambda *_: False)


def next_file_not_checked(patch: Patch) -> None:
    """At the end of a file the reader continues in the next existing one."""
    is_next = reader._is_next

    def is_joined(_: RelayReader, older: tuple[Any, str], newer: tuple[Any, str]) -> bool:
        return is_next(older[1], newer[1])

    patch.setattr(RelayReader, "_is_continuous", is_joined)
    patch.setattr(reader, "_is_next", lambda *_: True)


def foreign_names_not_excluded(patch: Patch) -> None:
    """A copy beside a file counts as a binlog file."""
    patch.setattr(layout, "_FILE", re.compile(layout._FILE.pattern + r"(\.bak)?"))


def holds_not_checked(patch: Patch) -> None:
    """Purge keeps only the current file."""

    def end_alone(self: RelayLog) -> Coordinates | None:
        return self.end()

    patch.setattr(RelayLog, "held", end_alone)


def only_sequences_compared(patch: Patch) -> None:
    """For a MariaDB replica only the sequence is compared with the primary."""
    patch.setattr(members, "is_logged", lambda *_: True)


def patterns_added(patch: Patch) -> None:
    """The rights of every pattern that matches a database count."""
    patch.setattr(
        grants,
        "_of_best_patterns",
        lambda rights, scope: frozenset().union(
            *(rights[held] for held in rights if grants._covers(held, scope))
        ),
    )


def terms_not_checked(patch: Patch) -> None:
    """An overtaken scheduler writes its plan."""

    def commit(self: LeaderTerm, changes: Sequence[Change]) -> None:
        self._session.commit(*changes)

    patch.setattr(LeaderTerm, "commit", commit)


def work_of_reports_not_checked(patch: Patch) -> None:
    """Every report under the task's name counts."""
    patch.setattr(SavedReport, "is_of", lambda *_, **__: True)


def brokers_not_compared(patch: Patch) -> None:
    """Progress counts for every broker."""
    patch.setattr(SavedReport, "report_for", lambda self, _: self.report)


def boots_not_compared(patch: Patch) -> None:
    """Only pid and start time of a recorded process are compared."""
    patch.setattr(process, "_boot_id", AnyText)


def names_not_checked(patch: Patch) -> None:
    """Any text becomes part of a path."""
    patch.setattr("millrace.zk.tree.store.is_name", lambda _: True)
    patch.setattr("millrace.zk.lease.membership.is_name", lambda _: True)


def earlier_schema_records_not_read(patch: Patch) -> None:
    """A schema ID is explained by the next schema record."""
    patch.setattr(TopicLookUp, "_find_before", lambda *_: None)


def removed_commits_reported_as_lost(patch: Patch) -> None:
    """A commit that can't be read back counts as lost, even if it was removed."""
    patch.setattr(Audit, "_is_removed", lambda *_: False)


def repeated_markers_refused(patch: Patch) -> None:
    """Any other offset than expected is an error."""

    def refuse(_self: Audit, offsets: int) -> None:
        raise Fatal("MR-3014", f"moved by {offsets}")

    patch.setattr(Audit, "_add_shift", refuse)


def digits_not_counted(patch: Patch) -> None:
    """The number of an ID's digits is not limited."""
    patch.setattr(service, "_DIGITS_MAX", 1 << 20)


def aliases_allowed(patch: Patch) -> None:
    """YAML aliases are read: nine lines may expand to a thousand million values."""
    patch.setattr(document_text._Loader, "compose_node", yaml.SafeLoader.compose_node)


def one_lock_for_all_sets(patch: Patch) -> None:
    """Attaching and detaching one set delays all others."""
    only = threading.Lock()
    patch.setattr(Upstreams, "_lock_of", lambda *_: only)


MUTANTS = [
    Mutant(
        "each set has a lock",
        one_lock_for_all_sets,
        "tests/unit/test_set_streams.py",
        {"test_set_with_unresponsive_members_delays_no_other": r"\['attach', 'detach'\] == \[\]"},
    ),
    Mutant(
        "the topic's id is compared",
        topic_ids_not_compared,
        "tests/unit/test_apply_run.py",
        {"test_topic_with_another_id_than_the_marks_is_not_read": NOT_RAISED},
    ),
    Mutant(
        "a GTID set includes the one before",
        gtid_sets_not_compared,
        "tests/unit/test_apply_window.py",
        {"test_shrinking_gtid_set_stops_the_task": NOT_RAISED},
    ),
    Mutant(
        "the first row follows the mark",
        first_row_not_checked,
        "tests/unit/test_apply_window.py",
        {"test_missing_row_stops_the_task_before_the_next_resolved[1-MR-5031]": NOT_RAISED},
    ),
    Mutant(
        "each row follows the one before",
        gaps_between_rows_not_checked,
        "tests/unit/test_apply_window.py",
        {"test_missing_row_stops_the_task_before_the_next_resolved[2-MR-5030]": NOT_RAISED},
    ),
    Mutant(
        "a resolved repeats the last seq",
        resolved_records_not_checked,
        "tests/unit/test_apply_window.py",
        {"test_resolved_after_missing_rows_stops_the_task[1-MR-5030]": NOT_RAISED},
    ),
    Mutant(
        "a start needs a proof",
        starts_not_proven,
        "tests/unit/test_apply_window.py",
        {"test_start_gtid_before_the_topic_stops_the_task[3-missing2-1-begins after]": NOT_RAISED},
    ),
    Mutant(
        "an order has one answer",
        answers_not_counted,
        "tests/unit/test_lost_answers.py",
        {"test_one_order_has_one_answer[2]": "too many values to unpack"},
    ),
    Mutant(
        "a turn follows its owner",
        owner_before_not_compared,
        "tests/unit/test_take_turn.py",
        {"test_turn_of_another_owner_is_refused[held0]": "DID NOT RAISE Fenced"},
    ),
    Mutant(
        "bitmaps above the mark are kept",
        bitmaps_above_the_mark_deleted,
        "tests/unit/test_applier.py",
        {"test_bitmaps_of_earlier_turns_stay_until_the_mark_passes_them": "bitmaps are lost"},
    ),
    Mutant(
        "no reader begins before a missing file",
        missing_files_not_noticed,
        "tests/unit/test_relay_damage.py",
        {"test_missing_file_in_the_middle_is_not_skipped": "began before a missing file"},
    ),
    Mutant(
        "no reader continues after a missing file",
        next_file_not_checked,
        "tests/unit/test_relay_damage.py",
        {"test_missing_file_in_the_middle_is_not_skipped": NOT_RAISED},
    ),
    Mutant(
        "a late member is left",
        lag_not_judged,
        "tests/unit/test_judge.py",
        {"test_cool_down_delays_only_switches_by_lag": "assert"},
    ),
    Mutant(
        "no live stream goes back",
        late_members_accepted,
        "tests/unit/test_source_choice.py",
        {"test_live_stream_never_goes_back": "assert"},
    ),
    Mutant(
        "no reader continues after a lost tail",
        lost_tails_not_noticed,
        "tests/unit/test_relay_log.py",
        {"test_reader_never_crosses_from_a_tail_lost_in_failover": "server-a"},
    ),
    Mutant(
        "a repeated file number is noticed",
        repeated_file_numbers_not_noticed,
        "tests/unit/test_relay_log.py",
        {"test_seek_goes_back_to_a_gtid_reused_by_another_server": "0-2-6"},
    ),
    Mutant(
        "foreign names are not binlog files",
        foreign_names_not_excluded,
        "tests/unit/test_relay_damage.py",
        {"test_foreign_files_in_the_relay_folder_are_left_alone": "mysql-bin\\.000002\\.bak"},
    ),
    Mutant(
        "purge keeps held files",
        holds_not_checked,
        "tests/unit/test_relay_purge.py",
        {"test_purge_deletes_a_prefix_and_no_held_file": "held files were deleted"},
    ),
    Mutant(
        "a member's last GTID is its primary's",
        only_sequences_compared,
        "tests/unit/test_source_choice.py",
        {"test_mariadb_positions_are_compared_by_domain": "0-2-90"},
    ),
    Mutant(
        "one pattern of GRANT counts",
        patterns_added,
        "tests/unit/test_grants.py",
        {"test_only_the_most_specific_pattern_counts[shop-privileges0]": "assert"},
    ),
    Mutant(
        "an assignment is committed under its term",
        terms_not_checked,
        "tests/property/test_zk_order.py",
        {
            "test_units_stay_whole_when_schedulers_die_or_are_overtaken": "an overtaken leader changed assignments"
        },
    ),
    Mutant(
        "progress belongs to the task's work",
        work_of_reports_not_checked,
        "tests/unit/test_zk_decisions.py",
        {"test_progress_is_shown_only_for_its_own_work[entry3-capture shop other-False]": "0-1-7"},
    ),
    Mutant(
        "progress belongs to the task's brokers",
        brokers_not_compared,
        "tests/unit/test_zk_decisions.py",
        {"test_progress_on_other_brokers_is_hidden[k2:9092-False]": "0-1-7"},
    ),
    Mutant(
        "a recorded process is from this boot",
        boots_not_compared,
        "tests/unit/test_server_process.py",
        {"test_process_record_of_another_boot_is_ignored": "is_running"},
    ),
    Mutant(
        "an earlier record explains a schema ID",
        earlier_schema_records_not_read,
        "tests/unit/test_topic_look_up.py",
        {
            "test_schema_id_has_its_last_meaning_before_the_reader[50000-0-second-100-False]": "third"
        },
    ),
    Mutant(
        "a removed commit is not reported as lost",
        removed_commits_reported_as_lost,
        "tests/unit/test_publisher_audit.py",
        {"test_commits_removed_before_the_audit_are_no_violation": "MR-3014"},
    ),
    Mutant(
        "a repeated marker is accepted",
        repeated_markers_refused,
        "tests/unit/test_publisher_audit.py",
        {"test_repeated_commit_marker_is_accepted": "MR-3014"},
    ),
    Mutant(
        "a name is checked before its node is read",
        names_not_checked,
        "tests/unit/test_names.py",
        {"test_invalid_name_reaches_no_node": "the ensemble is asked"},
    ),
    Mutant(
        "a process has a name",
        names_not_checked,
        "tests/unit/test_names.py",
        {"test_process_name_must_be_valid": NOT_RAISED},
    ),
    Mutant(
        "the digits of an ID are limited",
        digits_not_counted,
        "tests/unit/test_registry_requests.py",
        {"test_malformed_request_is_refused_with_a_reason": "5000 digits"},
    ),
    Mutant(
        "an alias is refused",
        aliases_allowed,
        "tests/property/test_malformed.py",
        {
            "test_hostile_yaml_is_refused_in_bounded_time[an alias (*name) is not allowed]": NOT_RAISED
        },
    ),
]


def _silent(check: str) -> Callable[[Patch], None]:
    """The findings of this check of the verifier are not reported."""

    def off(patch: Patch) -> None:
        inside, violated = [False], TopicVerifier._violated
        real = getattr(TopicVerifier, check)

        def silently(self: TopicVerifier, *given: Any, **named: Any) -> Any:
            inside[0] = True
            try:
                return real(self, *given, **named)
            finally:
                inside[0] = False

        def unless_inside(self: TopicVerifier, which: Check, what: str) -> None:
            if not inside[0]:
                violated(self, which, what)

        patch.setattr(TopicVerifier, check, silently)
        patch.setattr(TopicVerifier, "_violated", unless_inside)

    return off


# each of the verifier's checks: a violation that only it reports
_CHECKS = {
    "_check_known": "_schema_not_introduced-schema-was not introduced",
    "_check_whole": "_never_finished-whole-has no last record",
    "_check_new": "_delivered_again-once-was delivered before",
    "_check_repeated": "_seq_ahead-seq-resolved or fence record with seq",
    "_check_owner": "_stale_owner-owner-epoch 7 writes after epoch 9",
    "_check_delivered": "_resolved_too_early-resolved-before its end",
    "_step": "_drop_row-seq-follows seq",
    "_resolve": "_resolved_forgets-resolved-does not contain all of",
    "finish": "_no_mark_at_the_end-tail-the last record is of kind",
}

MUTANTS += [
    Mutant(
        f"the verifier's {check}",
        _silent(check),
        "tests/unit/test_topic_verify.py",
        {f"test_every_topic_violation_is_named[{harm}]": "no violation has"},
    )
    for check, harm in _CHECKS.items()
]
