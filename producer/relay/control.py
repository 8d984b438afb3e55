"""Manual purge: a command on the worker's machine requests it; the worker that holds the relay directory deletes files.

    <relay_dir>/purge.request     {"id": …, "until": "<subdir>/<file>:4" or null, "age_s": seconds or null,
                                   "evict": [task, …]}
    <relay_dir>/purge.answer      {"id": …, "deleted": ["<subdir>/<file>", …], "oldest": the oldest remaining file,
                                   "evicted": {task: its position}, "unknown": [task, …]}

Only the worker knows what its tasks have published, so only the worker deletes. It keeps the files that tasks hold and
the file being written (``purge``). A task that the request evicts keeps nothing (``evictions``). A request that names
an unknown task deletes nothing. If the command or the worker crashes, a request remains that the next worker
answers, or an answer file of a few bytes.

Guarantees: a request is executed at most once; an unreadable request is discarded. Not done here: when to look for one.
"""

import json
import secrets
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from millrace.errors import Fatal, MillraceError
from millrace.log import get_logger
from producer.relay import layout
from producer.relay.evictions import record_evictions
from producer.relay.files import DISK, Files, disk_errors, read_all
from producer.relay.purge import Positions, PurgePolicy, purge_before, purge_due
from producer.relay.writer import RelayLog
from schemas.place import FIRST_POS, Coordinates

REQUEST_NAME, ANSWER_NAME = "purge.request", "purge.answer"
ASK_TIMEOUT_S = 30.0  # a worker checks twice a second, except while it waits for a broker
POLL_S = 0.05

log = get_logger("producer.relay")


@dataclass(frozen=True, slots=True)
class PurgeRequest:
    """Which files to delete: those before ``until``, or those unchanged for ``age_s``, or all that are not needed."""

    until: Coordinates | None = None
    age_s: float | None = None
    evict: tuple[str, ...] = ()  # tasks whose files may be deleted


@dataclass(frozen=True, slots=True)
class PurgeAnswer:
    """The deleted files and the oldest remaining file, as ``<subdir>/<file>``; evicted tasks with their positions."""

    deleted: tuple[str, ...]
    oldest: str
    evicted: Mapping[str, str] = field(default_factory=dict)


def find_file(root: Path, name: str, *, files: Files = DISK) -> Coordinates:
    """The start of the file named ``<subdir>/<file>``, or of ``<file>`` in the newest sub-directory that has it.

    Fatal MR-2013, Retryable MR-2002.
    """
    wanted, _, file = name.rpartition("/")
    with disk_errors(root):
        for subdir in reversed(layout.find_subdirs(root, files)):
            is_wanted = wanted in ("", str(subdir))
            if is_wanted and file in layout.list_files(root / str(subdir), files):
                return Coordinates(str(subdir), file, FIRST_POS)
    raise Fatal("MR-2013", f"{root} has no file {name}", directory=root)


def find_subdir(root: Path, name: str = "", *, files: Files = DISK) -> Coordinates:
    """The start of the first file of a sub-directory, of the newest one without a name. Fatal MR-2013."""
    with disk_errors(root):
        for subdir in reversed(layout.find_subdirs(root, files)):
            names = (
                layout.list_files(root / str(subdir), files) if name in ("", str(subdir)) else []
            )
            if names:
                return Coordinates(str(subdir), names[0], FIRST_POS)
    raise Fatal("MR-2013", f"{root} has no files in {name or 'any sub-directory'}", directory=root)


def request_purge(
    root: Path, request: PurgeRequest, *, timeout_s: float = ASK_TIMEOUT_S, files: Files = DISK
) -> PurgeAnswer:
    """Request a purge from the worker that holds ``root`` and wait for its answer.

    Fatal MR-2012 if no worker holds it or none answers, MR-2015 if it evicts an unknown task; Retryable MR-2002.
    """
    with disk_errors(root):
        if not files.is_locked(root / layout.LOCK_NAME):
            raise Fatal(
                "MR-2012", f"no worker runs tasks with the relay log {root}", directory=root
            )
        request_id = secrets.token_hex(8)
        until = None if request.until is None else str(request.until)
        plain = {"id": request_id, "until": until, "age_s": request.age_s, "evict": request.evict}
        text = json.dumps(plain)
        layout.replace_file(root / REQUEST_NAME, text, is_durable=False, files=files)
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            answer = _read(files, root / ANSWER_NAME)
            if answer.get("id") == request_id:
                return _answer(root, answer)
            time.sleep(POLL_S)
        if _read(files, root / REQUEST_NAME).get("id") == request_id:
            files.unlink(root / REQUEST_NAME)
    raise Fatal("MR-2012", f"the worker did not answer in {timeout_s:g} s", directory=root)


def answer_purge_request(
    relay: RelayLog, *, needed: Callable[[], Positions | None]
) -> list[Coordinates]:
    """The worker's side: execute the pending request, if any, and return the deleted files. Retryable MR-2002.

    ``needed`` is called before the request file is removed. While it returns None (unknown), the request waits.
    """
    path = relay.root / REQUEST_NAME
    with disk_errors(relay.root):
        try:
            content = read_all(relay.disk, path)
        except FileNotFoundError:
            return []
        positions = needed()
        if positions is None:
            return []
        relay.disk.unlink(path)
    try:
        request_id, request = _parse(content)
    except (ValueError, KeyError, TypeError, RecursionError, MillraceError) as error:
        log.warning("unreadable purge request discarded", why=str(error))
        return []
    unknown = sorted(set(request.evict) - positions.keys() - relay.holds.by_owner().keys())
    evicted = {} if unknown else _evict(relay, request, positions)
    kept = {task: at for task, at in positions.items() if task not in evicted}
    deleted = [] if unknown else _purge(relay, request, kept)
    subdir, name = relay.list_files()[0]
    answer = {
        "id": request_id,
        "deleted": [f"{at.subdir}/{at.file}" for at in deleted],
        "oldest": f"{subdir}/{name}",
        "evicted": evicted,
        "unknown": unknown,
    }
    with disk_errors(relay.root):
        layout.replace_file(
            relay.root / ANSWER_NAME, json.dumps(answer), is_durable=False, files=relay.disk
        )
    return deleted


def _evict(relay: RelayLog, request: PurgeRequest, positions: Positions) -> dict[str, str]:
    """Record the evictions, then release what the tasks hold."""
    evicted = {task: str(positions.get(task, "")) for task in request.evict}
    if evicted:
        record_evictions(relay.root, evicted, relay.disk)
    for task in evicted:
        relay.holds.evict(task)
    with relay.condition:  # its reader may wait for bytes
        relay.condition.notify_all()
    return evicted


def _purge(relay: RelayLog, request: PurgeRequest, needed: Positions) -> list[Coordinates]:
    if request.age_s is not None:
        policy = PurgePolicy(age_s_max=request.age_s, free_bytes_min=0)
        return purge_due(relay, policy, needed=needed)
    limit = request.until or relay.end()
    return [] if limit is None else purge_before(relay, limit, needed=needed)


def _parse(content: bytes) -> tuple[str, PurgeRequest]:
    fields = json.loads(content)
    until, age_s = fields["until"], fields["age_s"]
    return str(fields["id"]), PurgeRequest(
        None if until is None else Coordinates.parse(until),
        None if age_s is None else float(age_s),
        tuple(map(str, fields.get("evict", ()))),
    )


def _answer(root: Path, answer: Mapping[str, object]) -> PurgeAnswer:
    deleted, evicted, unknown = (answer.get(name) for name in ("deleted", "evicted", "unknown"))
    if isinstance(unknown, list) and unknown:
        raise Fatal("MR-2015", f"the set has no task {', '.join(unknown)}", directory=root)
    return PurgeAnswer(
        tuple(map(str, deleted if isinstance(deleted, list) else ())),
        str(answer.get("oldest")),
        {str(k): str(v) for k, v in evicted.items()} if isinstance(evicted, dict) else {},
    )


def _read(files: Files, path: Path) -> dict[str, object]:
    """The content of a JSON file; empty if the file is missing or unreadable."""
    try:
        found = json.loads(read_all(files, path))
    except (FileNotFoundError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}
