"""Manual purge: a command requests it; the worker that holds the relay directory deletes files.

    <relay_dir>/purge.request     {"id": …, "filename": "", "sub_dir": "", "inactive": false, "age_s": seconds or null,
                                   "evict": [task, …]}
    <relay_dir>/purge.answer      {"id": …, "deleted": ["<subdir>/<file>", …], "oldest": the oldest remaining file,
                                   "evicted": {task: its position}, "error": {"code": …, "message": …} or null}

A command on the worker's machine writes the request. From another host, it is in the set's directives, and the worker
writes it (``place_request``). The answer is then in the status of the set's tasks, too.

Only the worker knows what its tasks have published, so only the worker deletes. It keeps the files that tasks hold and
the file being written (``purge``). A task that the request evicts keeps nothing (``evictions``). A request that names
an unknown file or task deletes nothing. If the command or the worker crashes, a request remains that the next worker
answers, or an answer file of a few bytes.

Guarantees: a request is executed at most once; an unreadable request is discarded. Not done here: when to look for one.
"""

import json
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, TypeVar

from millrace.errors import Fatal
from millrace.log import get_logger
from millrace.producer.relay import layout
from millrace.producer.relay.evictions import record_evictions
from millrace.producer.relay.files import DISK, Files, disk_errors, read_all
from millrace.producer.relay.purge import Positions, PurgePolicy, purge_before, purge_due
from millrace.producer.relay.writer import RelayLog
from millrace.schemas.place import FIRST_POS, Coordinates
from millrace.schemas.plain import Wire, from_plain, to_plain
from millrace.schemas.stages import PurgeAnswer, PurgeRefusal

REQUEST_NAME, ANSWER_NAME = "purge.request", "purge.answer"
ASK_TIMEOUT_S = 30.0  # a worker checks twice a second, except while it waits for a broker
POLL_S = 0.05

_UNREADABLE = (ValueError, KeyError, TypeError, RecursionError)

T = TypeVar("T")

log = get_logger("producer.relay")


@dataclass(frozen=True, slots=True, kw_only=True)
class PurgeRequest:
    """Which files to delete: those before a file or sub-directory, or those unchanged for ``age_s``, or all.

    ``is_inactive``: those before the newest sub-directory. Files that a task needs are kept, unless ``evict`` names it.
    """

    id: str = field(default_factory=lambda: secrets.token_hex(8))  # no other request has it
    filename: str = ""  # "<file>" of the newest sub-directory that has it, or "<subdir>/<file>"
    sub_dir: str = ""
    is_inactive: Annotated[bool, Wire(key="inactive")] = False
    age_s: float | None = None
    evict: tuple[str, ...] = ()

    def to_text(self) -> str:
        """The content of the request file."""
        return json.dumps(to_plain(self))


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
    error = Fatal("MR-2013", f"{root} has no file {name}", directory=root)
    raise error.name(set=root.name)


def find_subdir(root: Path, name: str = "", *, files: Files = DISK) -> Coordinates:
    """The start of the first file of a sub-directory, of the newest one without a name. Fatal MR-2013."""
    with disk_errors(root):
        for subdir in reversed(layout.find_subdirs(root, files)):
            names = (
                layout.list_files(root / str(subdir), files) if name in ("", str(subdir)) else []
            )
            if names:
                return Coordinates(str(subdir), names[0], FIRST_POS)
    error = Fatal(
        "MR-2013", f"{root} has no files in {name or 'any sub-directory'}", directory=root
    )
    raise error.name(set=root.name)


def request_purge(
    root: Path, request: PurgeRequest, *, timeout_s: float = ASK_TIMEOUT_S, files: Files = DISK
) -> PurgeAnswer:
    """Request a purge from the worker that holds ``root`` and wait for its answer.

    Fatal MR-2012 if no worker holds it or none answers, and the errors of ``check_answer``; Retryable MR-2002.
    """
    with disk_errors(root):
        if not files.is_locked(root / layout.LOCK_NAME):
            raise Fatal(
                "MR-2012", f"no worker runs tasks with the relay log {root}", directory=root
            )
        layout.replace_file(root / REQUEST_NAME, request.to_text(), is_durable=False, files=files)
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            answer = _read(PurgeAnswer, files, root / ANSWER_NAME)
            if answer is not None and answer.id == request.id:
                return check_answer(answer)
            time.sleep(POLL_S)
        waiting = _read(PurgeRequest, files, root / REQUEST_NAME)
        if waiting is not None and waiting.id == request.id:
            files.unlink(root / REQUEST_NAME)
    raise Fatal("MR-2012", f"the worker did not answer in {timeout_s:g} s", directory=root)


def place_request(relay: RelayLog, text: str) -> None:
    """Write a request that came through ZooKeeper, unless it is answered. Retryable MR-2002."""
    if text:
        with disk_errors(relay.root):
            try:
                request = _parse(text.encode())
            except _UNREADABLE as error:
                log.warning("unreadable purge request discarded", why=str(error))
                return
            answer = last_answer(relay)
            if answer is None or answer.id != request.id:
                path = relay.root / REQUEST_NAME
                layout.replace_file(path, text, is_durable=False, files=relay.disk)


def last_answer(relay: RelayLog) -> PurgeAnswer | None:
    """The last answer; None if there is none, or it can't be read. Retryable MR-2002."""
    with disk_errors(relay.root):
        return _read(PurgeAnswer, relay.disk, relay.root / ANSWER_NAME)


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
        request = _parse(content)
    except _UNREADABLE as error:
        log.warning("unreadable purge request discarded", why=str(error))
        return []
    evicted: dict[str, str] = {}
    deleted: list[Coordinates] = []
    refusal: Fatal | None = None
    try:
        limit = _limit(relay, request)
        _check_tasks(relay, request, positions)
        evicted = _evict(relay, request, positions)
        kept = {task: at for task, at in positions.items() if task not in evicted}
        deleted = _purge(relay, request, limit, kept)
    except Fatal as error:
        refusal = error
    subdir, name = relay.list_files()[0]
    answer = PurgeAnswer(
        id=request.id,
        deleted=tuple(f"{at.subdir}/{at.file}" for at in deleted),
        oldest=f"{subdir}/{name}",
        evicted=evicted,
        error=PurgeRefusal(refusal.code, refusal.message) if refusal else None,
    )
    text = json.dumps(to_plain(answer))
    with disk_errors(relay.root):
        layout.replace_file(relay.root / ANSWER_NAME, text, is_durable=False, files=relay.disk)
    return deleted


def _limit(relay: RelayLog, request: PurgeRequest) -> Coordinates | None:
    """The file before which files are deleted. Fatal MR-2013 if there is no such file."""
    if request.filename:
        name = f"{request.sub_dir}/{request.filename}" if request.sub_dir else request.filename
        return find_file(relay.root, name, files=relay.disk)
    if request.is_inactive or request.sub_dir:
        return find_subdir(relay.root, request.sub_dir, files=relay.disk)
    return relay.end()


def _check_tasks(relay: RelayLog, request: PurgeRequest, positions: Positions) -> None:
    unknown = sorted(set(request.evict) - positions.keys() - relay.holds.by_owner().keys())
    if unknown:
        raise Fatal("MR-2015", f"the set has no task {', '.join(unknown)}", directory=relay.root)


def _evict(relay: RelayLog, request: PurgeRequest, positions: Positions) -> dict[str, str]:
    """Record the evictions, then release what the tasks hold."""
    evicted = {task: str(positions.get(task) or "") for task in request.evict}
    if evicted:
        record_evictions(relay.root, evicted, relay.disk)
    for task in evicted:
        relay.holds.evict(task)
    with relay.condition:  # its reader may wait for bytes
        relay.condition.notify_all()
    return evicted


def _purge(
    relay: RelayLog, request: PurgeRequest, limit: Coordinates | None, needed: Positions
) -> list[Coordinates]:
    if request.age_s is not None:
        policy = PurgePolicy(age_s_max=request.age_s, free_bytes_min=0)
        return purge_due(relay, policy, needed=needed)
    return [] if limit is None else purge_before(relay, limit, needed=needed)


def _parse(content: bytes) -> PurgeRequest:
    return from_plain(PurgeRequest, json.loads(content))


def check_answer(answer: PurgeAnswer) -> PurgeAnswer:
    """The answer. Fatal MR-2013 if the request named an unknown file, MR-2015 an unknown task."""
    if answer.error is not None:
        raise Fatal(answer.error.code, answer.error.message)
    return answer


def _read(kind: type[T], files: Files, path: Path) -> T | None:
    """The content of a JSON file; None if the file is missing or unreadable."""
    try:
        return from_plain(kind, json.loads(read_all(files, path)))
    except (FileNotFoundError, *_UNREADABLE):
        return None
