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
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from millrace.errors import Fatal
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

_UNREADABLE = (ValueError, KeyError, TypeError, RecursionError)

log = get_logger("producer.relay")


@dataclass(frozen=True, slots=True, kw_only=True)
class PurgeRequest:
    """Which files to delete: those before a file or sub-directory, or those unchanged for ``age_s``, or all.

    ``is_inactive``: those before the newest sub-directory. Files that a task needs are kept, unless ``evict`` names it.
    """

    filename: str = ""  # "<file>" of the newest sub-directory that has it, or "<subdir>/<file>"
    sub_dir: str = ""
    is_inactive: bool = False
    age_s: float | None = None
    evict: tuple[str, ...] = ()

    def to_text(self, request_id: str) -> str:
        """The content of the request file."""
        plain = {"filename": self.filename, "sub_dir": self.sub_dir, "inactive": self.is_inactive}
        return json.dumps({"id": request_id, **plain, "age_s": self.age_s, "evict": self.evict})


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


def new_request_id() -> str:
    """An id that no other request has."""
    return secrets.token_hex(8)


def request_purge(
    root: Path, request: PurgeRequest, *, timeout_s: float = ASK_TIMEOUT_S, files: Files = DISK
) -> PurgeAnswer:
    """Request a purge from the worker that holds ``root`` and wait for its answer.

    Fatal MR-2012 if no worker holds it or none answers, and the errors of ``read_answer``; Retryable MR-2002.
    """
    with disk_errors(root):
        if not files.is_locked(root / layout.LOCK_NAME):
            raise Fatal(
                "MR-2012", f"no worker runs tasks with the relay log {root}", directory=root
            )
        request_id = new_request_id()
        text = request.to_text(request_id)
        layout.replace_file(root / REQUEST_NAME, text, is_durable=False, files=files)
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            answer = _read(files, root / ANSWER_NAME)
            if answer.get("id") == request_id:
                return read_answer(answer)
            time.sleep(POLL_S)
        if _read(files, root / REQUEST_NAME).get("id") == request_id:
            files.unlink(root / REQUEST_NAME)
    raise Fatal("MR-2012", f"the worker did not answer in {timeout_s:g} s", directory=root)


def place_request(relay: RelayLog, text: str) -> None:
    """Write a request that came through ZooKeeper, unless it is answered. Retryable MR-2002."""
    if text:
        with disk_errors(relay.root):
            try:
                request_id, _ = _parse(text.encode())
            except _UNREADABLE as error:
                log.warning("unreadable purge request discarded", why=str(error))
                return
            if last_answer(relay).get("id") != request_id:
                path = relay.root / REQUEST_NAME
                layout.replace_file(path, text, is_durable=False, files=relay.disk)


def last_answer(relay: RelayLog) -> Mapping[str, object]:
    """The last answer, as in the answer file; empty if there is none. Retryable MR-2002."""
    with disk_errors(relay.root):
        return _read(relay.disk, relay.root / ANSWER_NAME)


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
    answer = {
        "id": request_id,
        "deleted": [f"{at.subdir}/{at.file}" for at in deleted],
        "oldest": f"{subdir}/{name}",
        "evicted": evicted,
        "error": refusal and {"code": refusal.code, "message": refusal.message},
    }
    with disk_errors(relay.root):
        layout.replace_file(
            relay.root / ANSWER_NAME, json.dumps(answer), is_durable=False, files=relay.disk
        )
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


def _parse(content: bytes) -> tuple[str, PurgeRequest]:
    fields = json.loads(content)
    age_s = fields["age_s"]
    return str(fields["id"]), PurgeRequest(
        filename=str(fields["filename"]),
        sub_dir=str(fields["sub_dir"]),
        is_inactive=bool(fields["inactive"]),
        age_s=None if age_s is None else float(age_s),
        evict=tuple(map(str, fields["evict"])),
    )


def read_answer(answer: Mapping[str, object]) -> PurgeAnswer:
    """The answer from its JSON object. Fatal MR-2013 if the request named an unknown file, MR-2015 an unknown task."""
    error, deleted, evicted = (answer.get(name) for name in ("error", "deleted", "evicted"))
    if isinstance(error, dict):
        raise Fatal(str(error["code"]), str(error["message"]))
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
