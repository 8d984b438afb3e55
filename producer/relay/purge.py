"""Deletes old relay files: manually up to a file, by age, or when the disk runs low.

Never deleted:

- the file being written,
- files that a running task holds (``RelayLog.hold``), from the first byte that it has not published,
- files with source transactions after a position in ``needed``, the positions of the set's tasks, running or not,
  except of tasks that an operator evicted by name (``evictions``). A task that has no position yet needs every file.

Files are deleted oldest first, so the remaining files have no gap.

| a crash after               | leaves                                                      |
|-----------------------------|-------------------------------------------------------------|
| unlink of some files        | the remaining files, which the next purge deletes           |
| the same, and a power cut   | possibly a gap, which readers never cross (``reader``)      |
| rmdir of a sub-directory    | an index that names it: the next start rewrites the index   |

``PurgePolicy`` decides which files are due, ``PurgeSchedule`` when to check. Not done here: the thread that checks.
"""

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Self

from millrace.faults import fault_point, register
from millrace.log import get_logger
from millrace.producer.relay import layout
from millrace.producer.relay.evictions import read_evictions
from millrace.producer.relay.files import disk_errors
from millrace.producer.relay.layout import Subdir
from millrace.producer.relay.reader import RelayReader
from millrace.producer.relay.stored_file import modified_at_s, remove_stored
from millrace.producer.relay.writer import RelayLog
from millrace.schemas.documents import PurgeRules
from millrace.schemas.gtid import GtidPosition
from millrace.schemas.place import FIRST_POS, Coordinates

BEFORE_UNLINK = register("relay.before_unlink")
BEFORE_RMDIR = register("relay.before_rmdir")

SPACE_INTERVAL_S = 60.0  # 15 GiB of free space last a minute at 270 MB/s

# By task; None: it has published nothing and begins at the first binlog.
Positions = Mapping[str, GtidPosition | None]

log = get_logger("producer.relay")


@dataclass(frozen=True, slots=True)
class PurgePolicy:
    """Files are due ``age_s_max`` after their last change, or earlier while less than ``free_bytes_min`` are free."""

    age_s_max: float = math.inf
    free_bytes_min: int = 0

    @classmethod
    def of(cls, rules: PurgeRules) -> Self:
        """The policy of a set document, where 0 switches a rule off."""
        age_s_max = rules.expires_h * 3600 if rules.expires_h else math.inf
        return cls(age_s_max, rules.remain_gb << 30)


class PurgeSchedule:
    """The automatic purge of a set. It checks every ``interval_s``, and free space at least once a minute."""

    def __init__(self, rules: PurgeRules) -> None:
        self._policy = PurgePolicy.of(rules)
        self._space_policy = PurgePolicy(free_bytes_min=self._policy.free_bytes_min)
        self._interval_s = rules.interval_s
        self._next_s = self._next_space_s = -math.inf

    def run(self, relay: RelayLog, needed: Callable[[], Positions | None]) -> list[Coordinates]:
        """Delete the files that are due now and return them. While ``needed`` returns None, none is deleted."""
        now_s = time.monotonic()
        if self._interval_s == 0 or now_s < min(self._next_s, self._next_space_s):
            return []
        is_full_check = now_s >= self._next_s
        policy = self._policy if is_full_check else self._space_policy
        if not is_full_check and not _is_space_low(relay, policy):
            self._next_space_s = now_s + SPACE_INTERVAL_S
            return []
        if (positions := needed()) is None:
            return []
        if is_full_check:
            self._next_s = now_s + self._interval_s
        self._next_space_s = now_s + SPACE_INTERVAL_S
        return purge_due(relay, policy, needed=positions)


def purge_before(relay: RelayLog, limit: Coordinates, *, needed: Positions) -> list[Coordinates]:
    """Delete the files before the file of ``limit`` that are neither held nor needed, and return them."""
    return [at for at in _purgeable(relay, limit, needed) if _delete(relay, at)]


def purge_due(relay: RelayLog, policy: PurgePolicy, *, needed: Positions) -> list[Coordinates]:
    """Delete the files that are due by the policy and neither held nor needed, and return them."""
    deleted = []
    for at in _purgeable(relay, None, needed):
        with disk_errors(relay.root):
            age_s = time.time() - modified_at_s(relay.path(at), relay.disk)
        if age_s <= policy.age_s_max and not _is_space_low(relay, policy):
            break
        if _delete(relay, at):
            deleted.append(at)
    return deleted


def _is_space_low(relay: RelayLog, policy: PurgePolicy) -> bool:
    with disk_errors(relay.root):
        return relay.disk.free_bytes(relay.root) < policy.free_bytes_min


def _purgeable(relay: RelayLog, limit: Coordinates | None, needed: Positions) -> list[Coordinates]:
    """The files that are neither held nor needed, oldest first."""
    held = relay.held()
    if held is None:
        return []
    if any(position is None for position in needed.values()):
        with disk_errors(relay.root):
            evicted = read_evictions(relay.root, relay.disk)
        if any(position is None and task not in evicted for task, position in needed.items()):
            return []
    # A position without a file is older than the log and must be read from the source in any case.
    positions = [position for position in needed.values() if position is not None]
    with RelayReader(relay) as reader:
        wanted = [at for position in positions if (at := reader.seek(position)) is not None]
    first_kept = min([held, *wanted, *([] if limit is None else [limit])])
    files = (Coordinates(str(subdir), name, FIRST_POS) for subdir, name in relay.list_files())
    return [at for at in files if at.order[:2] < first_kept.order[:2]]


def _delete(relay: RelayLog, at: Coordinates) -> bool:
    subdir = layout.parse_subdir(at.subdir)
    assert subdir is not None  # the list of files has valid names only
    fault_point(BEFORE_UNLINK)
    if not relay.forget(subdir, at.file):
        return False  # a reader holds it by now
    with disk_errors(relay.root):
        remove_stored(relay.path(at), relay.disk)
        log.info("relay file purged", file=str(at))
        if not any(known == subdir for known, _ in relay.list_files()):
            _delete_subdir(relay, subdir)
    return True


def _delete_subdir(relay: RelayLog, subdir: Subdir) -> None:
    fault_point(BEFORE_RMDIR)
    if layout.remove_subdir(relay.root / str(subdir), relay.disk, with_damaged=True):
        relay.forget_subdir(subdir)
