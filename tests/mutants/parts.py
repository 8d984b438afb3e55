"""Guards that need no server taken away."""

import re
import threading
from collections.abc import Callable, Sequence
from typing import Any

import yaml

from consumer import apply, batch, spark, window
from consumer.topic.decode import TopicLookUp
from consumer.topic.verify import Check, TopicVerifier
from deploy.servers import process
from millrace.errors import Fatal
from producer.publish.audit import Audit
from producer.relay import layout, reader
from producer.relay.reader import RelayReader
from producer.relay.writer import RelayLog
from producer.upstream import choice
from producer.upstream.upstream import Upstreams
from registry import service
from schemas.documents import text as document_text
from schemas.place import Coordinates
from tests.kit.equal_to_all import AnyText
from tests.mutants.mutant import Mutant, Patch
from zk.client.session import Change
from zk.lease.election import LeaderTerm
from zk.tree.reports import SavedReport

NOT_TOLD = r"DID NOT RAISE (Fatal|Retryable)"


def the_first_row_may_be_any(patch: Patch) -> None:
    """What stands in front of a window is not asked."""
    patch.setattr(window, "check_follows", lambda *_: None)


def a_hole_between_rows_is_passed(patch: Patch) -> None:
    """Only the first row is looked at."""
    check = window._check_seqs
    patch.setattr(window, "_check_seqs", lambda seqs, *given: check(seqs[:1], *given))


def a_resolved_is_believed(patch: Patch) -> None:
    """It carries the mark over whatever is missing in front of it."""
    patch.setattr(window, "_check_repeated", lambda *_: None)


def ids_of_topics_are_not_compared(patch: Patch) -> None:
    """A topic is its name."""
    patch.setattr(apply, "same_topic", lambda _, mark, **__: mark)


def a_gtid_set_may_shrink(patch: Patch) -> None:
    """The seq is believed alone."""
    patch.setattr(window, "_check_positions", lambda *_: None)


def a_start_needs_no_proof(patch: Patch) -> None:
    """A task that starts at a GTID set takes what the topic begins with for the next."""
    patch.setattr(window, "_check_begin", lambda *_: None)


def lanes_that_answered_are_all(patch: Patch) -> None:
    """Nobody asks which they are."""
    patch.setattr(spark, "_check_answers", lambda *_: None)


def what_lanes_did_is_all(patch: Patch) -> None:
    """Nobody counts their rows."""
    patch.setattr(batch, "_check_rows", lambda *_, **__: None)


def files_are_joined_unasked(patch: Patch) -> None:
    """Who looks for a place to begin passes over a missing file."""
    patch.setattr(RelayReader, "_is_continuous", lambda *_: True)


def all_sub_directories_are_read_on(patch: Patch) -> None:
    """Also from one into that whose server lacked its end."""
    patch.setattr(RelayLog, "is_diverged", lambda *_: False)


def a_number_is_a_number(patch: Patch) -> None:
    """Whichever server gave it."""
    patch.setattr(reader, "has_same_sequence_from_other_server", lambda *_: False)


def the_next_file_is_any(patch: Patch) -> None:
    """Who has read a file to its end goes on in the next one there is."""
    is_next = reader._is_next

    def is_joined(_: RelayReader, older: tuple[Any, str], newer: tuple[Any, str]) -> bool:
        return is_next(older[1], newer[1])

    patch.setattr(RelayReader, "_is_continuous", is_joined)
    patch.setattr(reader, "_is_next", lambda *_: True)


def foreign_names_are_files(patch: Patch) -> None:
    """A copy that somebody laid beside a file is taken for one."""
    patch.setattr(layout, "_FILE", re.compile(layout._FILE.pattern + r"(\.bak)?"))


def holds_are_not_asked(patch: Patch) -> None:
    """Only the file being written is kept."""

    def end_alone(self: RelayLog) -> Coordinates | None:
        return self.end()

    patch.setattr(RelayLog, "held", end_alone)


def a_sequence_is_enough(patch: Patch) -> None:
    """Of a MariaDB member that is behind its primary only how far is asked."""
    patch.setattr(choice, "is_logged", lambda *_: True)


def a_reign_is_not_checked(patch: Patch) -> None:
    """A scheduler that was overtaken writes its plan."""

    def commit(self: LeaderTerm, changes: Sequence[Change]) -> None:
        self._session.commit(*changes)

    patch.setattr(LeaderTerm, "commit", commit)


def any_work_is_the_tasks(patch: Patch) -> None:
    """A report of the task's name is of the task."""
    patch.setattr(SavedReport, "is_of", lambda *_, **__: True)


def brokers_are_all_one(patch: Patch) -> None:
    """Where progress was made is not asked."""
    patch.setattr(SavedReport, "report_for", lambda self, _: self.report)


def boots_are_all_one(patch: Patch) -> None:
    """Of a recorded process only pid and start time are asked."""
    patch.setattr(process, "_boot_id", AnyText)


def anything_is_a_name(patch: Patch) -> None:
    """Paths are made of whatever was typed."""
    patch.setattr("zk.tree.store.is_name", lambda _: True)
    patch.setattr("zk.lease.membership.is_name", lambda _: True)


def what_stands_in_front_is_not_asked(patch: Patch) -> None:
    """A schema id means what is said of it next."""
    patch.setattr(TopicLookUp, "_find_before", lambda *_: None)


def removed_commits_are_lost_ones(patch: Patch) -> None:
    """What can't be read back is missed, whoever took it."""
    patch.setattr(Audit, "_is_removed", lambda *_: False)


def no_marker_comes_again(patch: Patch) -> None:
    """Whatever is not in its place is a disagreement."""

    def refuse(_self: Audit, offsets: int) -> None:
        raise Fatal("MR-3014", f"moved by {offsets}")

    patch.setattr(Audit, "_add_shift", refuse)


def numbers_of_any_length(patch: Patch) -> None:
    """An id's digits are not counted."""
    patch.setattr(service, "_DIGITS_MAX", 1 << 20)


def aliases_are_read(patch: Patch) -> None:
    """As YAML has them: nine lines may mean a thousand million values."""
    patch.setattr(document_text._Loader, "compose_node", yaml.SafeLoader.compose_node)


def one_lock_for_all_sets(patch: Patch) -> None:
    """Attaching and detaching one set holds up all others."""
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
        ids_of_topics_are_not_compared,
        "tests/unit/test_apply_run.py",
        {"test_topic_with_another_id_than_the_marks_is_not_read": NOT_TOLD},
    ),
    Mutant(
        "a GTID set includes the one before",
        a_gtid_set_may_shrink,
        "tests/unit/test_apply_window.py",
        {"test_shrinking_gtid_set_stops_the_task": NOT_TOLD},
    ),
    Mutant(
        "the first row follows the mark",
        the_first_row_may_be_any,
        "tests/unit/test_apply_window.py",
        {"test_missing_row_stops_the_task_before_the_next_resolved[1-MR-5031]": NOT_TOLD},
    ),
    Mutant(
        "each row follows the one before",
        a_hole_between_rows_is_passed,
        "tests/unit/test_apply_window.py",
        {"test_missing_row_stops_the_task_before_the_next_resolved[2-MR-5030]": NOT_TOLD},
    ),
    Mutant(
        "a resolved repeats the last seq",
        a_resolved_is_believed,
        "tests/unit/test_apply_window.py",
        {"test_resolved_after_missing_rows_stops_the_task[1-MR-5030]": NOT_TOLD},
    ),
    Mutant(
        "a start needs a proof",
        a_start_needs_no_proof,
        "tests/unit/test_apply_window.py",
        {"test_start_gtid_before_the_topic_stops_the_task[3-missing2-1-begins after]": NOT_TOLD},
    ),
    Mutant(
        "each lane is heard",
        lanes_that_answered_are_all,
        "tests/unit/test_lost_answers.py",
        {"test_each_lane_answers_once": NOT_TOLD},
    ),
    Mutant(
        "lanes apply all that was planned",
        what_lanes_did_is_all,
        "tests/unit/test_lost_answers.py",
        {"test_mark_stays_if_lanes_applied_less_than_planned[rows1]": NOT_TOLD},
    ),
    Mutant(
        "nobody begins in front of a missing file",
        files_are_joined_unasked,
        "tests/unit/test_relay_damage.py",
        {"test_missing_file_in_the_middle_is_not_skipped": "began before a missing file"},
    ),
    Mutant(
        "nobody goes on behind a missing file",
        the_next_file_is_any,
        "tests/unit/test_relay_damage.py",
        {"test_missing_file_in_the_middle_is_not_skipped": NOT_TOLD},
    ),
    Mutant(
        "nobody comes from a lost tail",
        all_sub_directories_are_read_on,
        "tests/unit/test_relay_log.py",
        {"test_reader_never_crosses_from_a_tail_lost_in_failover": "server-a"},
    ),
    Mutant(
        "a number that was given again is met",
        a_number_is_a_number,
        "tests/unit/test_relay_log.py",
        {"test_seek_goes_back_to_a_gtid_reused_by_another_server": "0-2-6"},
    ),
    Mutant(
        "foreign names are no files",
        foreign_names_are_files,
        "tests/unit/test_relay_damage.py",
        {"test_foreign_files_in_the_relay_folder_are_left_alone": "mysql-bin\\.000002\\.bak"},
    ),
    Mutant(
        "purge keeps what is held",
        holds_are_not_asked,
        "tests/unit/test_relay_purge.py",
        {"test_purge_deletes_a_prefix_and_no_held_file": "held files were deleted"},
    ),
    Mutant(
        "a member's last GTID is its primary's",
        a_sequence_is_enough,
        "tests/unit/test_source_choice.py",
        {"test_mariadb_positions_are_compared_by_domain": "0-2-90"},
    ),
    Mutant(
        "an assignment is committed under its term",
        a_reign_is_not_checked,
        "tests/property/test_zk_order.py",
        {
            "test_units_stay_whole_when_schedulers_die_or_are_overtaken": "an overtaken leader changed assignments"
        },
    ),
    Mutant(
        "progress is of the task's work",
        any_work_is_the_tasks,
        "tests/unit/test_zk_decisions.py",
        {"test_progress_is_shown_only_for_its_own_work[entry3-capture shop other-False]": "0-1-7"},
    ),
    Mutant(
        "progress is of the task's brokers",
        brokers_are_all_one,
        "tests/unit/test_zk_decisions.py",
        {"test_progress_on_other_brokers_is_hidden[k2:9092-False]": "0-1-7"},
    ),
    Mutant(
        "a recorded process is of this boot",
        boots_are_all_one,
        "tests/unit/test_server_process.py",
        {"test_process_record_of_another_boot_is_ignored": "is_running"},
    ),
    Mutant(
        "an id means what was said in front",
        what_stands_in_front_is_not_asked,
        "tests/unit/test_topic_look_up.py",
        {
            "test_schema_id_has_its_last_meaning_before_the_reader[50000-0-second-100-False]": "third"
        },
    ),
    Mutant(
        "a removed commit is not a lost one",
        removed_commits_are_lost_ones,
        "tests/unit/test_publisher_audit.py",
        {"test_commits_removed_before_the_audit_are_no_violation": "MR-3014"},
    ),
    Mutant(
        "a marker that comes again is let pass",
        no_marker_comes_again,
        "tests/unit/test_publisher_audit.py",
        {"test_repeated_commit_marker_is_accepted": "MR-3014"},
    ),
    Mutant(
        "a name is one before its node is asked",
        anything_is_a_name,
        "tests/unit/test_names.py",
        {"test_invalid_name_reaches_no_node": "the ensemble is asked"},
    ),
    Mutant(
        "a process has a name",
        anything_is_a_name,
        "tests/unit/test_names.py",
        {"test_process_name_must_be_valid": NOT_TOLD},
    ),
    Mutant(
        "an id has few digits",
        numbers_of_any_length,
        "tests/unit/test_registry_requests.py",
        {"test_malformed_request_is_refused_with_a_reason": "5000 digits"},
    ),
    Mutant(
        "an alias is refused",
        aliases_are_read,
        "tests/property/test_malformed.py",
        {"test_hostile_yaml_is_refused_in_bounded_time[an alias (*name) is not allowed]": NOT_TOLD},
    ),
]


def _silent(check: str) -> Callable[[Patch], None]:
    """What this check of the verifier finds is not told."""

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


# each of the verifier's checks: a harm that it alone names
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
