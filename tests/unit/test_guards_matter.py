"""Single guards of the product taken away: a test that shows what each guarantees goes red, by the harm that it names.

Here are those that need no server; with one: ``tests/integration/test_guards_matter.py``. Others stand where their
parts are tried: rules of the publisher (``test_publisher_rules_matter``), the relay log (``test_relay_guards_matter``),
the models (``tests/simulation/guards.py``, ``test_apply_model``).
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from consumer import batch, spark, stretch
from consumer.topic.decode import TopicLookUp
from consumer.topic.verify import Check, TopicVerifier
from deploy.servers import process
from millrace.errors import Fatal
from producer.publisher.audit import Audit
from producer.relay import layout, reader
from producer.relay.log import RelayLog
from producer.relay.reader import RelayReader
from producer.source import choice
from schemas.coordinates import Coordinates
from schemas.documents import text as document_text
from schemas.registry import service
from tests.campaign import POINTS
from tests.equal_to_all import AnyText
from tests.property import test_zk_order as order
from tests.unit import test_apply_stretch as holes
from tests.unit import test_faults as points
from tests.unit import test_lost_answers as lost
from tests.unit import test_names as names
from tests.unit import test_publisher as publisher
from tests.unit import test_registry_requests as requests
from tests.unit import test_relay_damage as damage
from tests.unit import test_relay_log as relay
from tests.unit import test_server_process as processes
from tests.unit import test_source_choice as choosing
from tests.unit import test_topic_look_up as meaning
from tests.unit import test_topic_verify as verifying
from tests.unit import test_zk_decisions as deciding
from zk.election import Reign
from zk.session import Change
from zk.status import Standing

Patch = pytest.MonkeyPatch

SEEN = (AssertionError, Fatal, ValueError, pytest.fail.Exception)
NOT_TOLD = r"DID NOT RAISE (Fatal|Retryable)"


@dataclass(frozen=True)
class Guard:
    """``off`` takes the guard away; ``shown`` is a test that passes with it, and fails without by ``harm``."""

    name: str
    off: Callable[[Patch], None]
    shown: Callable[[Path], object]
    harm: str


# ---- rows that retention took ------------------------------------------------------------------------


def the_first_row_may_be_any(patch: Patch) -> None:
    """What stands in front of a stretch is not asked."""
    patch.setattr(stretch, "check_follows", lambda *_: None)


def a_hole_between_rows_is_passed(patch: Patch) -> None:
    """Only the first row is looked at."""
    check = stretch._check_seqs
    patch.setattr(stretch, "_check_seqs", lambda seqs, *given: check(seqs[:1], *given))


def a_resolved_is_believed(patch: Patch) -> None:
    """It carries the mark over whatever is missing in front of it."""
    patch.setattr(stretch, "_check_resolved", lambda *_: None)


def a_start_needs_no_proof(patch: Patch) -> None:
    """A task that starts at a GTID set takes what the topic begins with for the next."""
    patch.setattr(stretch, "_check_begin", lambda *_: None)


# ---- answers of lanes --------------------------------------------------------------------------------


def lanes_that_answered_are_all(patch: Patch) -> None:
    """Nobody asks which they are."""
    patch.setattr(spark, "_check_heard", lambda *_: None)


def what_lanes_did_is_all(patch: Patch) -> None:
    """Nobody counts their rows."""
    patch.setattr(batch, "_check_rows", lambda *_, **__: None)


# ---- the relay log -----------------------------------------------------------------------------------


def files_are_joined_unasked(patch: Patch) -> None:
    """Who looks for a place to begin passes over a missing file."""
    patch.setattr(RelayReader, "_is_joined", lambda *_: True)


def all_sub_directories_are_read_on(patch: Patch) -> None:
    """Also from one into that whose server lacked its end."""
    patch.setattr(RelayLog, "is_apart", lambda *_: False)


def a_number_is_a_number(patch: Patch) -> None:
    """Whichever server gave it."""
    patch.setattr(reader, "gives_other_servers", lambda *_: False)


def the_next_file_is_any(patch: Patch) -> None:
    """Who has read a file to its end goes on in the next one there is."""
    is_next = reader._is_next

    def is_joined(_: RelayReader, older: tuple[Any, str], newer: tuple[Any, str]) -> bool:
        return is_next(older[1], newer[1])

    patch.setattr(RelayReader, "_is_joined", is_joined)
    patch.setattr(reader, "_is_next", lambda *_: True)


def foreign_names_are_files(patch: Patch) -> None:
    """A copy that somebody laid beside a file is taken for one."""
    patch.setattr(layout, "_FILE", re.compile(layout._FILE.pattern + r"(\.bak)?"))


def holds_are_not_asked(patch: Patch) -> None:
    """Only the file being written is kept."""

    def end_alone(self: RelayLog) -> Coordinates | None:
        return self.end()

    patch.setattr(RelayLog, "held", end_alone)


# ---- who decides -------------------------------------------------------------------------------------


def a_sequence_is_enough(patch: Patch) -> None:
    """Of a MariaDB member that is behind its primary only how far is asked."""
    patch.setattr(choice, "is_logged", lambda *_: True)


def a_reign_is_not_checked(patch: Patch) -> None:
    """A scheduler that was overtaken writes its plan."""

    def commit(self: Reign, changes: Sequence[Change]) -> None:
        self._session.commit(*changes)

    patch.setattr(Reign, "commit", commit)


OVERTAKEN = [*order.TORN[:4], ("lead", 1, 0), ("commit", 0, 0)]


def overtaken(_: Path) -> None:
    """A scheduler is overtaken between its look and its commit."""
    inner: Callable[..., None] = (
        order.test_units_stay_whole_whichever_scheduler_dies_or_is_overtaken_between_two_commits
    ).hypothesis.inner_test  # type: ignore[attr-defined]
    inner(OVERTAKEN)


def any_work_is_the_tasks(patch: Patch) -> None:
    """A report of the task's name is of the task."""
    patch.setattr(Standing, "is_of", lambda *_, **__: True)


def brokers_are_all_one(patch: Patch) -> None:
    """Where progress was made is not asked."""
    patch.setattr(Standing, "told_of", lambda self, _: self.report)


def boots_are_all_one(patch: Patch) -> None:
    """Of a recorded process only pid and start time are asked."""
    patch.setattr(process, "_boot_id", AnyText)


def anything_is_a_name(patch: Patch) -> None:
    """Paths are made of whatever was typed."""
    patch.setattr("zk.store.is_name", lambda _: True)
    patch.setattr("zk.membership.is_name", lambda _: True)


# ---- records, requests, documents --------------------------------------------------------------------


def what_stands_in_front_is_not_asked(patch: Patch) -> None:
    """A schema id means what is said of it next."""
    patch.setattr(TopicLookUp, "_before", lambda *_: None)


def removed_commits_are_lost_ones(patch: Patch) -> None:
    """What can't be read back is missed, whoever took it."""
    patch.setattr(Audit, "_is_removed", lambda *_: False)


def no_marker_comes_again(patch: Patch) -> None:
    """Whatever is not in its place is a disagreement."""

    def refuse(_self: Audit, offsets: int) -> None:
        raise Fatal("MR-3014", f"moved by {offsets}")

    patch.setattr(Audit, "_move", refuse)


def numbers_of_any_length(patch: Patch) -> None:
    """An id's digits are not counted."""
    patch.setattr(service, "_DIGITS_MAX", 1 << 20)


def a_long_id(_: Path) -> None:
    """The example of the test of malformed requests."""
    inner: Callable[..., None] = (
        requests.test_a_malformed_request_is_refused_with_a_reason
    ).hypothesis.inner_test  # type: ignore[attr-defined]
    inner("GET", "/schemas/ids/{}", ("9" * 5000, ""), b"")


def aliases_are_read(patch: Patch) -> None:
    """As YAML has them: nine lines may mean a thousand million values."""
    patch.setattr(document_text._Loader, "compose_node", yaml.SafeLoader.compose_node)


def an_alias(_: Path) -> None:
    """A document that is small however it is read."""
    with pytest.raises(Fatal):
        document_text.plain_from_yaml("a: &a [x]\nb: *a\n")


def a_point_that_nobody_kills_at(patch: Patch) -> None:
    """The campaign does not know one of them."""
    patch.setattr(points, "PRODUCT", ("producer", "consumer"))  # for the sake of time
    patch.setattr(points, "POINTS", [point for point in POINTS if point != "apply.after_mark"])


GUARDS = [
    Guard(
        "the first row follows the mark",
        the_first_row_may_be_any,
        lambda _: holes.test_a_missing_row_stops_the_task_before_a_resolved_tells(1, "MR-5031"),
        NOT_TOLD,
    ),
    Guard(
        "each row follows the one before",
        a_hole_between_rows_is_passed,
        lambda _: holes.test_a_missing_row_stops_the_task_before_a_resolved_tells(2, "MR-5030"),
        NOT_TOLD,
    ),
    Guard(
        "a resolved repeats the last seq",
        a_resolved_is_believed,
        lambda _: holes.test_a_resolved_behind_missing_rows_stops_the_task(1, "MR-5030"),
        NOT_TOLD,
    ),
    Guard(
        "a start needs a proof",
        a_start_needs_no_proof,
        lambda _: holes.test_a_start_at_a_gtid_that_the_topic_does_not_reach_back_to_stops_the_task(
            3, (), 1, "begins behind"
        ),
        NOT_TOLD,
    ),
    Guard(
        "each lane is heard",
        lanes_that_answered_are_all,
        lambda _: lost.test_each_lane_answers_once((0, 2)),
        NOT_TOLD,
    ),
    Guard(
        "lanes apply all that was planned",
        what_lanes_did_is_all,
        lambda _: lost.test_the_mark_stays_where_lanes_applied_less_than_was_planned((1, 1)),
        NOT_TOLD,
    ),
    Guard(
        "nobody begins in front of a missing file",
        files_are_joined_unasked,
        damage.test_a_file_that_is_missing_in_the_middle_is_not_read_over,
        "begins in front of a missing file",
    ),
    Guard(
        "nobody goes on behind a missing file",
        the_next_file_is_any,
        damage.test_a_file_that_is_missing_in_the_middle_is_not_read_over,
        NOT_TOLD,
    ),
    Guard(
        "nobody comes from a lost tail",
        all_sub_directories_are_read_on,
        relay.test_nobody_comes_from_a_tail_that_the_next_server_lacked,
        "server-a",
    ),
    Guard(
        "a number that was given again is met",
        a_number_is_a_number,
        relay.test_seek_goes_back_to_a_number_that_another_server_gave_again,
        "0-2-6",
    ),
    Guard(
        "foreign names are no files",
        foreign_names_are_files,
        damage.test_what_is_not_ours_in_the_folder_is_left_alone,
        r"mysql-bin\.000002\.bak",
    ),
    Guard(
        "purge keeps what is held",
        holds_are_not_asked,
        relay.test_purge_deletes_a_prefix_and_never_what_is_held,
        "held files were deleted",
    ),
    Guard(
        "a member's last GTID is its primary's",
        a_sequence_is_enough,
        lambda _: choosing.test_mariadb_positions_are_compared_by_domain(),
        "0-2-90",
    ),
    Guard(
        "an assignment is committed under its reign",
        a_reign_is_not_checked,
        overtaken,
        "an overtaken leader changed assignments",
    ),
    Guard(
        "progress is of the task's work",
        any_work_is_the_tasks,
        lambda _: deciding.test_progress_is_told_of_the_work_that_made_it_alone(
            deciding.an_entry(9), "capture shop other", False
        ),
        "0-1-7",
    ),
    Guard(
        "progress is of the task's brokers",
        brokers_are_all_one,
        lambda _: deciding.test_progress_at_other_brokers_is_told_to_nobody("k2:9092", False),
        "0-1-7",
    ),
    Guard(
        "a recorded process is of this boot",
        boots_are_all_one,
        # what it records, and would signal, is a child of its own
        processes.test_a_record_of_another_boot_is_of_nobody,
        "is_running",
    ),
    Guard(
        "an id means what was said in front",
        what_stands_in_front_is_not_asked,
        lambda _: meaning.test_an_id_means_what_was_said_last_in_front_of_the_reader(
            50_000, 0, "second", 100, asks_registry=False
        ),
        "third",
    ),
    Guard(
        "a removed commit is not a lost one",
        removed_commits_are_lost_ones,
        lambda _: publisher.test_commits_removed_before_they_were_read_back_are_no_disagreement(),
        "MR-3014",
    ),
    Guard(
        "a marker that comes again is let pass",
        no_marker_comes_again,
        lambda _: publisher.test_a_marker_that_comes_again_is_no_disagreement(),
        "MR-3014",
    ),
    Guard(
        "a name is one before its node is asked",
        anything_is_a_name,
        lambda _: names.test_what_is_no_name_reaches_no_node(),
        "the ensemble is asked",
    ),
    Guard(
        "a process has a name",
        anything_is_a_name,
        lambda _: names.test_a_process_is_called_by_a_name(),
        NOT_TOLD,
    ),
    Guard("an id has few digits", numbers_of_any_length, a_long_id, "5000 digits"),
    Guard("an alias is refused", aliases_are_read, an_alias, NOT_TOLD),
    Guard(
        "the campaign knows each fault point",
        a_point_that_nobody_kills_at,
        lambda _: points.test_every_fault_point_of_the_product_is_a_point_of_the_campaign(),
        "apply.after_mark",
    ),
]


@pytest.mark.parametrize("guard", GUARDS, ids=lambda guard: guard.name)
def test_without_its_guard_the_test_of_it_is_red(
    guard: Guard, memory_path: Path, monkeypatch: Patch
) -> None:
    """And by its harm, not by anything else."""
    guard.off(monkeypatch)
    with pytest.raises(SEEN, match=guard.harm):
        guard.shown(memory_path)


@pytest.mark.parametrize("shown", [overtaken, a_long_id, an_alias])
def test_with_its_guard_nothing_is_seen(shown: Callable[[Path], object], memory_path: Path) -> None:
    """Of what is no test of its own."""
    shown(memory_path)


# ---- the verifier ------------------------------------------------------------------------------------

# each of the verifier's checks: a harm that it alone names
CHECKS = {
    "_check_known": (verifying._schema_not_introduced, Check.SCHEMA, "was not introduced"),
    "_check_whole": (verifying._never_finished, Check.WHOLE, "has no last record"),
    "_check_new": (verifying._delivered_again, Check.ONCE, "was delivered before"),
    "_check_repeated": (verifying._seq_ahead, Check.SEQ, "resolved or fence record says seq"),
    "_check_owner": (verifying._stale_owner, Check.OWNER, "epoch 7 writes behind epoch 9"),
    "_check_delivered": (verifying._resolved_too_early, Check.RESOLVED, "before its end"),
    "_step": (verifying._drop_row, Check.SEQ, "stands behind seq"),
    "_resolve": (verifying._resolved_forgets, Check.RESOLVED, "lacks some of"),
    "finish": (verifying._no_mark_at_the_end, Check.TAIL, "the last record is of kind"),
}


def test_every_check_of_the_verifier_is_one_of_these() -> None:
    """A check that is added is taken away here, too."""
    saying = {
        name
        for name, found in vars(TopicVerifier).items()
        if "_violated" in getattr(getattr(found, "__code__", None), "co_names", ())
    }
    assert saying - {"feed"} == CHECKS.keys()  # `feed`: what is no record of ours


@pytest.mark.parametrize("check", CHECKS)
def test_without_a_check_of_the_verifier_its_harm_is_not_named(
    check: str, monkeypatch: Patch
) -> None:
    """The other checks pass what it is for."""
    inside, violated, real = [False], TopicVerifier._violated, getattr(TopicVerifier, check)

    def silently(self: TopicVerifier, *given: Any, **named: Any) -> Any:
        inside[0] = True
        try:
            return real(self, *given, **named)
        finally:
            inside[0] = False

    def unless_inside(self: TopicVerifier, which: Check, what: str) -> None:
        if not inside[0]:
            violated(self, which, what)

    monkeypatch.setattr(TopicVerifier, check, silently)
    monkeypatch.setattr(TopicVerifier, "_violated", unless_inside)
    with pytest.raises(AssertionError, match="nobody says"):
        verifying.test_every_harm_is_named(*CHECKS[check])
