"""The record of evicted tasks: an operator had files deleted that a task needs (`millrace relay purge --evict TASK`).

    <relay_dir>/evictions.json      {"TASK": {"at": UTC time, "gtid_set": its position then, "is_reported": false}, …}

The record is durable before the first file is deleted. The next start of the task reports it once as its reason
(Fatal MR-2014, which blocks the task). When an operator resumes the task, it reads from the source what it needs.

| a crash after                 | leaves                                                                   |
|-------------------------------|--------------------------------------------------------------------------|
| the record                    | an eviction without a purge: the task reports it and then reads on       |
| the purge                     | the same; the answer is missing, the next purge deletes the rest         |
| the report was written        | a task that starts without it; the log of the worker has it              |

An unreadable record counts as none and is logged. Guarantees: the functions are called by the process that holds the
relay directory, one at a time. Not done here: releasing holds (``holds``), deleting (``purge``).
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from millrace.faults import fault_point, register
from millrace.log import get_logger
from millrace.producer.relay import layout
from millrace.producer.relay.files import DISK, Files, disk_errors, read_all
from millrace.producer.relay.holds import evicted
from millrace.schemas.plain import from_plain, object_of, to_plain

RECORD_NAME = "evictions.json"
AFTER_RECORD = register("relay.after_eviction_record")

log = get_logger("producer.relay")


@dataclass(frozen=True, slots=True)
class Eviction:
    """When a task was evicted, and its published position then."""

    at: str
    gtid_set: str
    is_reported: bool = False


def record_evictions(root: Path, positions: Mapping[str, str], files: Files = DISK) -> None:
    """Write down that these tasks are evicted at these positions. Retryable MR-2002."""
    now = datetime.now(UTC).isoformat(timespec="seconds")
    with disk_errors(root):
        known = read_evictions(root, files)
        _write(root, known | {task: Eviction(now, text) for task, text in positions.items()}, files)
    for task, text in positions.items():
        log.warning("task evicted from the relay log", task=task, gtid_set=text)
    fault_point(AFTER_RECORD)


def report_eviction(root: Path, task: str, files: Files = DISK) -> None:
    """Raise Fatal MR-2014 at the first start after an eviction; the start after that one forgets it."""
    with disk_errors(root):
        known = read_evictions(root, files)
        eviction = known.pop(task, None)
        if eviction is None:
            return
        if eviction.is_reported:
            _write(root, known, files)
            return
        mark_reported(root, task, files)
    log.warning("eviction reported", task=task, at=eviction.at)
    raise evicted(
        task, f" at {eviction.at}, when it had published {eviction.gtid_set or 'nothing'}"
    )


def mark_reported(root: Path, task: str, files: Files = DISK) -> None:
    """Note that the task has reported its eviction. Retryable MR-2002."""
    with disk_errors(root):
        known = read_evictions(root, files)
        if task in known:
            _write(
                root, known | {task: Eviction(known[task].at, known[task].gtid_set, True)}, files
            )


def read_evictions(root: Path, files: Files = DISK) -> dict[str, Eviction]:
    """Every recorded eviction by task."""
    try:
        plain = object_of(json.loads(read_all(files, root / RECORD_NAME)))
        return {task: from_plain(Eviction, fields) for task, fields in plain.items()}
    except FileNotFoundError:
        return {}
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        log.warning("unreadable record of evictions", directory=str(root), error=str(error))
        return {}


def _write(root: Path, evictions: Mapping[str, Eviction], files: Files) -> None:
    if not evictions:
        files.unlink(root / RECORD_NAME)
        return
    text = json.dumps({task: to_plain(eviction) for task, eviction in evictions.items()})
    layout.replace_file(root / RECORD_NAME, text, is_durable=True, files=files)
