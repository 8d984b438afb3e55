"""``millrace up`` and ``down``: a stack that outlives the command that started it.

    $MILLRACE_HOME/run/<name>/
        stack.json          what `up --json` prints; written last: it stands only when everything ran
        environment.json    how commands find the stack
        <part>/process.json who runs, written as each is started
    $MILLRACE_HOME/run/<name>.lock

Guarantees: two commands at once wait for each other; an `up` that fails or is interrupted ends what it started; what a
killed `up` left behind is ended by the next `up` or `down`; a pid (or a session's number) that was given to
somebody else, in this boot or another, is never signalled.
A keeper restarts what dies (``deploy.keeper``), so that the stack behaves like an installation.
"""

import fcntl
import json
import shutil
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from deploy.description import NAME, StackDescription
from deploy.servers.process import (
    RECORD_NAME,
    ProcessRecord,
    ProcessSpec,
    ServerProcess,
    end_session,
    is_running,
    kill_session,
    session_members,
    terminate,
)
from deploy.services import service_environment
from deploy.stack import LocalStack, Say, StackOptions
from millrace.errors import Fatal
from millrace.home import local_stack_folder

STOP_S = 15.0
KEEPER = "keeper"


def start_background(name: str, options: StackOptions, *, say: Say = print) -> StackDescription:
    """Start a stack, or find it running; Fatal MR-8006 when parts of a complete one have ended for good."""
    folder = local_stack_folder(name)
    with _alone(folder):
        running = _running(folder)
        if running is not None:
            return running
        _end_all(folder)
        folder.mkdir(mode=0o700, parents=True)
        stack = LocalStack(folder, replace(options, dies_with_parent=False), say=say)
        environment = folder / "environment.json"
        environment.write_text(json.dumps(dict(service_environment(stack.endpoints))))
        try:
            stack.start()
            _start_keeper(folder)
        except BaseException:
            stack.stop()
            _end_all(folder, keep=True)
            raise
        stack.description.write(folder)
        return stack.description


def end_background(name: str, *, keep: bool = False) -> int:
    """End everything of the stack; how many processes there were. Its files go too, unless ``keep``."""
    folder = local_stack_folder(name)
    if not folder.exists() and not _lock_of(folder).exists():
        return 0  # no `up` has begun; a lock made here would stay
    with _alone(folder):
        return _end_all(folder, keep=keep)


def records(folder: Path) -> Sequence[ProcessRecord]:
    """Every process that was started for the stack in ``folder``."""
    found = (*folder.glob(f"*/{RECORD_NAME}"), *folder.glob(f"*/*/{RECORD_NAME}"))
    return [ProcessRecord.read(path) for path in sorted(found)]


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with _lock_of(folder).open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _lock_of(folder: Path) -> Path:
    return folder.with_suffix(".lock")


def _running(folder: Path) -> StackDescription | None:
    """The description of a stack that runs; None when there is none, or it ended with the machine."""
    description = StackDescription.read(folder)
    if description is None:
        return None
    standing = records(folder)
    if not any(is_running(record.identity) for record in standing):
        return None
    if not any(is_running(record.identity) for record in standing if record.spec.name == KEEPER):
        raise Fatal("MR-8006", "a local stack runs, but its keeper has ended")
    return description


def _end_all(folder: Path, *, keep: bool = False) -> int:
    """Keeper, service, servers, in this order; servers at once when nobody wants their data."""
    keepers, services, servers = _by_kind(records(folder))
    for record in keepers:
        end_session(record.identity, timeout_s=STOP_S)
    _, services, servers = _by_kind(records(folder))  # the keeper may have restarted one meanwhile
    alive = [
        record for record in (*keepers, *services, *servers) if session_members(record.identity)
    ]
    for record in services:
        terminate(record.identity)
    for record in services:
        end_session(record.identity, timeout_s=STOP_S)
    for record in servers:
        if keep:
            end_session(record.identity, timeout_s=STOP_S)
        else:
            kill_session(record.identity)
    (folder / "environment.json").unlink(missing_ok=True)
    (folder / NAME).unlink(missing_ok=True)
    if not keep:
        shutil.rmtree(folder, ignore_errors=True)
    return len(alive)


def _by_kind(found: Sequence[ProcessRecord]) -> tuple[list[ProcessRecord], ...]:
    """Keeper, processes of the service, servers."""
    keepers = [record for record in found if record.spec.name == KEEPER]
    services = [record for record in found if record.spec.name.startswith("millrace ")]
    return keepers, services, [record for record in found if record not in keepers + services]


def _start_keeper(folder: Path) -> None:
    command = (sys.executable, "-P", "-m", "deploy.keeper", str(folder))
    ServerProcess(
        ProcessSpec(KEEPER, command, folder / KEEPER / "log"), dies_with_parent=False
    ).launch()
