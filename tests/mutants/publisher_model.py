"""The publisher's rules removed one by one, judged on the model of a broker."""

from contextlib import suppress
from dataclasses import replace

from millrace.drivers.kafka.reader import TopicRecord
from millrace.errors import Fatal, Retryable
from millrace.producer.publish import opening, tail
from millrace.producer.publish.audit import Audit
from millrace.producer.publish.opening import Opener, TailHint
from millrace.producer.publish.positions import Codec
from millrace.producer.publish.publisher import Publisher
from tests.mutants.mutant import Mutant, Patch


def ends_not_compared(patch: Patch) -> None:
    """Rule 2 off: the stable end is taken as the end."""

    patch.setattr(opening, "wait_until_stable", lambda partition, _: partition.all_ends())


def leases_not_verified(patch: Patch) -> None:
    """Rule 2 off: init_transactions comes first."""
    opened_ = Opener.open
    patch.setattr(
        Opener,
        "open",
        lambda self, basis: opened_(replace(self, verify_lease=lambda: None), basis),
    )


def fences_not_read_back(patch: Patch) -> None:
    """Step 7 of a start off."""
    patch.setattr(Opener, "_read_back", lambda *given: given[-1] + len(given[-2]) + 1)


def sent_again_unasked(patch: Patch) -> None:
    """Rule 3 off: after an error a new instance sends the batch again without reading the tail."""

    def renew_blindly(self: Publisher, unknown: Retryable) -> bool:
        self._renew()
        return False

    patch.setattr(Publisher, "_is_committed_after", renew_blindly)


def errors_taken_for_success(patch: Patch) -> None:
    """Rule 3 off: an error counts as a lost answer."""

    def believe(self: Publisher, unknown: Retryable) -> bool:
        self._renew()
        self._note_commit(self._end)
        return True

    patch.setattr(Publisher, "_is_committed_after", believe)


def ends_not_audited(patch: Patch) -> None:
    """Rule 4 off: only the last record is checked."""
    patch.setattr(Audit, "_compare_end", lambda *_: None)


def records_not_audited(patch: Patch) -> None:
    """Rule 4 off: only the end is checked."""
    patch.setattr(Audit, "_read_back", lambda self, commit: self._compare_end(commit, float("inf")))


def commits_not_read_back(patch: Patch) -> None:
    """Rule 4 off: no commit is read back."""
    patch.setattr(Audit, "_read_back", lambda *_: None)


def leases_not_verified_again(patch: Patch) -> None:
    """Rule 2 off for a replaced instance."""
    renew = Opener.renew
    patch.setattr(
        Opener,
        "renew",
        lambda self, *given: renew(replace(self, verify_lease=lambda: None), *given),
    )


def refusals_ignored(patch: Patch) -> None:
    """Records that the client refuses are skipped."""

    def add(self: Publisher, transactions: object, buffer: object, bounds: object) -> None:
        transactions.add_slices(buffer, bounds)  # type: ignore[attr-defined]

    patch.setattr(Publisher, "_add", add)


def foreign_records_passed_over(patch: Patch) -> None:
    """Unreadable records are ignored."""
    decode = tail._decode

    def careless(record: TopicRecord, codec: Codec) -> object:
        with suppress(Fatal):
            return decode(record, codec)
        return None

    patch.setattr(tail, "_decode", careless)


def hints_of_the_moment(patch: Patch) -> None:
    """Rule 6 off: the hint has the current progress and end."""
    patch.setattr(Publisher, "hint", property(lambda self: TailHint(self._progress, self._end)))


_FILE = "tests/unit/test_publisher_rules.py"
_CONTRACT = "tests/unit/test_publisher_contract.py"

MUTANTS = [
    Mutant(
        "2 the stable end is the end",
        ends_not_compared,
        _CONTRACT,
        {"test_nothing_is_written_after_an_open_transaction": "is committed after"},
    ),
    Mutant(
        "2 the lease comes first",
        leases_not_verified,
        _FILE,
        {"test_owner_without_its_lease_writes_nothing_at_start": "the successor was fenced"},
    ),
    Mutant(
        "2 the lease comes first again",
        leases_not_verified_again,
        _FILE,
        {"test_owner_that_loses_its_lease_later_writes_nothing": "the successor was fenced"},
    ),
    Mutant(
        "2 a foreign tail stops the start",
        foreign_records_passed_over,
        _FILE,
        {"test_foreign_tail_is_not_progress": "opened after a foreign record"},
    ),
    Mutant(
        "2 the fence is read back",
        fences_not_read_back,
        _FILE,
        {"test_aborted_fence_opens_nothing": "although its fence was aborted"},
    ),
    Mutant(
        "3 an error has an unknown outcome (committed)",
        sent_again_unasked,
        _FILE,
        {"test_no_row_is_lost_or_doubled[lost after]": "rows are in the topic twice"},
    ),
    Mutant(
        "3 an error has an unknown outcome (not committed)",
        errors_taken_for_success,
        _FILE,
        {"test_no_row_is_lost_or_doubled[lost before]": "rows are lost"},
    ),
    Mutant(
        "4 the last record is readable",
        records_not_audited,
        _FILE,
        {
            "test_abort_acknowledged_as_commit_stops_the_task": "missing committed rows were not reported"
        },
    ),
    Mutant(
        "4 the end is after the marker",
        ends_not_audited,
        _FILE,
        {"test_foreign_record_at_the_end_stops_the_task": "a foreign record was not reported"},
    ),
    Mutant(
        "4 rows that an open transaction hides are reported",
        commits_not_read_back,
        _CONTRACT,
        {
            "test_rows_hidden_by_open_transaction_stop_the_task": "hidden committed rows were not reported"
        },
    ),
    Mutant(
        "a row over the limit stops",
        refusals_ignored,
        _CONTRACT,
        {"test_oversized_row_is_not_skipped": "seq \\d follows seq 3"},
    ),
    Mutant(
        "6 a hint was true once",
        hints_of_the_moment,
        _FILE,
        {"test_hint_was_once_the_true_end": "is sent what it has read"},
    ),
]
