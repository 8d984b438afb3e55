"""Guards of the product that can be removed one by one: the simulation must notice.

A guard is removed by replacing its function with a careless one. ``where`` is the state machine that shows the missing
guard, ``harm`` the invariant that breaks there.
"""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import numpy as np

from millrace.consumer.kernel import hashes
from millrace.consumer.records.numbers import NO_SEQS, Ints, Seqs
from millrace.consumer.tables import table_plans
from millrace.consumer.tables.causality_keys import key_lines
from millrace.consumer.target import progress
from millrace.consumer.target.bitmap import not_applied
from millrace.consumer.task import start as apply_start
from millrace.consumer.turn import applier, lane_planner
from millrace.consumer.window import window
from millrace.consumer.write import ddl, ddl_outcome, target_transaction
from millrace.errors import Retryable
from millrace.producer.binlog import file_head
from millrace.producer.convert.converter import Converter
from millrace.producer.publish import opening
from millrace.producer.publish.config import PublisherLimits
from millrace.producer.publish.opening import Opener
from millrace.producer.publish.publisher import Publisher
from millrace.producer.relay import writer as relay_log
from millrace.producer.relay.files import DISK, Files
from millrace.producer.relay.recovery import WalkResult, walk_file
from millrace.producer.relay.writer import RelayLog
from millrace.schemas.gtid import Flavour, GtidPosition, MariadbGtidSet, binary
from tests.simulation.model_kafka import ModelTransactions

Patch = tuple[Any, str, Any]

# A row is written twice or out of order; the target's keys refuse it before a commit could show it (I8).
REFUSED = r"I10: .* is blocked: MR-5010 (insert|update|delete) of a row"


@dataclass(frozen=True, slots=True)
class Guard:
    """``name`` is the removed guard; ``harm`` is a pattern of the first violation that a judge reports."""

    name: str
    where: str
    harm: str
    patches: tuple[Patch, ...]
    seed: int = 2  # with which the missing guard shows soon
    flavours: tuple[Flavour, ...] = (Flavour.MYSQL,)

    @contextmanager
    def taken_away(self) -> Iterator[None]:
        """Remove the guard during the block."""
        with ExitStack() as stack:
            for place, attribute, careless in self.patches:
                stack.enter_context(mock.patch.object(place, attribute, careless))
            yield


def _nothing(*_: object, **__: object) -> None:
    return None


# ---- capture ---------------------------------------------------------------------------------------


def _believed(ends: Any, start: Any, hint: Any) -> Any:
    """The progress that the task's status remembers."""
    return start if hint is None else hint.progress


def _joined(self: ModelTransactions) -> None:
    """A producer instance under the current epoch."""
    self._epoch = self._topic.epoch


def _sent_again(self: Publisher, unknown: Retryable) -> bool:
    self._renew()
    return False


def _uncut(path: Path, flavour: Flavour, files: Files = DISK) -> WalkResult | None:
    walked = walk_file(path, flavour, files)
    if walked is None:
        path.unlink()
        return None
    return replace(walked, end=walked.size)


def _closed(self: Converter) -> Any:
    self._progress = replace(self._progress, open=None)
    return _cut(self)


_cut = Converter._cut


def _one_domain(body: bytes, *, flavour: Flavour) -> GtidPosition:
    found = _decode_previous(body, flavour=flavour)
    if isinstance(found, MariadbGtidSet):
        return MariadbGtidSet.of(found.gtids()[:1])
    return found


_decode_previous = binary.decode_previous


# ---- apply -----------------------------------------------------------------------------------------


def _all_records(offsets: Ints, next_offset: int) -> int:
    return 0


def _all_waiting(seqs: Seqs, *, mark: int, applied: Seqs) -> Any:
    return not_applied(seqs, mark=mark, applied=NO_SEQS)


def _identity_alone(table_plan: Any, inventory: Any) -> Any:
    return tuple(
        line for line in key_lines(table_plan, inventory) if line.kind in (hashes.ROW, hashes.BAG)
    )


def _own_lane_each(groups: Ints, weights: Ints, lane_count: int, bound: Ints) -> Ints:
    return np.arange(len(groups), dtype=np.int64) % lane_count


def _marked_first(self: applier.Applier, window: Any, flight: Any) -> None:
    self._move(flight.after, flight.learned, through=flight.number - 1)
    _fly(self, window, flight)


_fly = applier.Applier._fly


def _unclaimed(self: Any, connection: Any, owner: Any) -> None:
    return None


def _forgotten_all(connection: Any, owner: Any, *, through: int) -> None:
    _delete_applied(connection, owner, through=1 << 60)
    progress.delete_earlier(connection, owner)


_delete_applied = progress.delete_applied


def _executed_again(*_: object) -> str:
    return ddl_outcome.EXECUTE


def _unfenced() -> tuple[Patch, ...]:
    return tuple(
        (module, "check_fence", _nothing) for module in (target_transaction, ddl, apply_start)
    )


def _of(name: str, where: str, harm: str, *patches: Patch, seed: int = 2) -> Guard:
    return Guard(name, where, harm, patches, seed)


def _of_both(name: str, where: str, harm: str, *patches: Patch, seed: int = 2) -> Guard:
    return Guard(name, where, harm, patches, seed, tuple(Flavour))


GUARDS: tuple[Guard, ...] = (
    _of(
        "a greater epoch in the topic's tail ends a start",
        "owners",
        "I4",
        (Opener, "_fenced_by", _nothing),
    ),
    _of_both(
        "progress is read from the topic's tail",
        "owners",
        "I4",
        (opening, "read_tail", _nothing),
        (opening, "progress_without_tail", _believed),
    ),
    _of(
        "an instance ends after a slow commit",
        "answers",
        "I10: w1 is blocked: MR-3015",
        (PublisherLimits, "suspicious_s", float("inf")),
    ),
    _of(
        "an unknown outcome is read from the tail",
        "answers",
        "I1",
        (Publisher, "_is_committed_after", _sent_again),
    ),
    _of(
        "a start fences the instance before it",
        "owners",
        "I10: w2 is blocked: MR-3013",
        (ModelTransactions, "init", _joined),
    ),
    _of_both("a torn relay tail is cut", "relay", "I5", (relay_log, "recover_file", _uncut)),
    _of_both(
        "the rest of a source transaction after a cut connection is truncated",
        "relay",
        "I5",
        (RelayLog, "cut_back", _nothing),
    ),
    Guard(
        "the position before a file has each domain",
        "files",
        "I1",
        ((file_head, "decode_previous", _one_domain),),
        flavours=(Flavour.MARIADB,),
    ),
    _of_both(
        "a resumed source transaction stays open until its end",
        "parts",
        "I3",
        (Converter, "_cut", _closed),
        seed=11,
    ),
    _of(
        "records before the mark are skipped",
        "statements",
        "I6",
        (applier, "np", SimpleNamespace(searchsorted=_all_records)),  # the mark's place in a batch
        (window, "_check_seqs", _nothing),  # these would notice and stop
        (window, "_check_repeated", _nothing),
        (window, "_check_positions", _nothing),
        (applier, "check_follows", _nothing),
    ),
    _of(
        "seqs in bitmaps are skipped",
        "lanes",
        REFUSED,
        (window, "not_applied", _all_waiting),
        seed=1,
    ),
    _of("each target transaction reads the fence row", "lanes", "I8", *_unfenced(), seed=1),
    _of_both(
        "the fence row is read with a lock",
        "drivers",
        "I8",
        (progress, "_share", lambda _: ""),
    ),
    _of(
        "a lane leaves a bitmap",
        "lanes",
        "I8",
        (target_transaction.BitmapClaim, "make", _unclaimed),
    ),
    _of(
        "bitmaps above the mark stay when it moves",
        "lanes",
        "I8",
        (target_transaction, "delete_applied", _forgotten_all),
        seed=4,
    ),
    _of(
        "the mark moves after the lanes",
        "lanes",
        "I8",
        (applier.Applier, "_fly", _marked_first),
    ),
    _of(
        "a second unique key is a causality key",
        "lanes",
        REFUSED,
        (table_plans, "key_lines", _identity_alone),
    ),
    _of(
        "changes of one group share a lane",
        "lanes",
        REFUSED,
        (lane_planner, "pack_lanes", _own_lane_each),
        seed=3,
    ),
    _of(
        "a statement's intent says whether it was executed",
        "statements",
        "I10: a1 is blocked: MR-5041 ALTER TABLE: Duplicate column",
        (ddl, "decide", _executed_again),
        seed=23,
    ),
)
