"""``millrace up`` and ``down``: a stack that outlives the command that started it.

    $MILLRACE_HOME/run/<name>/
        stack.json           the output of `up --json`; written last, when everything runs
        environment.json     how commands find the stack
        <part>/process.json  one process; written when it is started
    $MILLRACE_HOME/run/<name>.lock

Guarantees: two commands at the same time wait for each other. An `up` that fails or is interrupted ends what it
started. The next `up` or `down` ends what a killed `up` left. A pid or session number that now belongs to a foreign
process, in this boot or another, is never signaled.
The keeper (``deploy.local.keeper``) restarts processes that end, so that the stack behaves like an installation.
"""

import fcntl
import json
import shutil
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from millrace.deploy.local.description import NAME, StackDescription
from millrace.deploy.local.services import service_environment
from millrace.deploy.local.stack import LocalStack, Say, StackOptions
from millrace.deploy.servers.process import (
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
from millrace.deploy.servers.tls import openssl_program
from millrace.errors import Fatal
from millrace.home_folder import local_stack_folder

STOP_S = 15.0
KEEPER = "keeper"


def start_background(name: str, options: StackOptions, *, say: Say = print) -> StackDescription:
    """Start a stack, or return the one that runs. Fatal MR-8006 if it runs without its keeper.

    Fatal MR-8030 if a secured one is wanted, and the one that runs is not; MR-8002 if ``openssl`` is missing.
    """
    folder = local_stack_folder(name)
    with _locked(folder):
        running = _running(folder)
        if running is not None:
            if options.is_secured and not running.tls_ca:
                raise Fatal("MR-8030", f"the local stack {name} runs without TLS and logins")
            return running
        if options.is_secured:
            openssl_program()  # before anything is changed
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
    """End every process of the stack and return their number. Removes its files unless ``keep``."""
    folder = local_stack_folder(name)
    if not folder.exists() and not _lock_of(folder).exists():
        return 0  # nothing to end, and a lock file made here would stay
    with _locked(folder):
        return _end_all(folder, keep=keep)


def server_program(folder: Path) -> Path | None:
    """The program of the database servers of the stack in ``folder``."""
    programs = (Path(record.spec.command[0]) for record in records(folder))
    return next((program for program in programs if program.name in ("mariadbd", "mysqld")), None)


def records(folder: Path) -> Sequence[ProcessRecord]:
    """The records of all processes that were started for the stack in ``folder``."""
    found = (*folder.glob(f"*/{RECORD_NAME}"), *folder.glob(f"*/*/{RECORD_NAME}"))
    return [ProcessRecord.read(path) for path in sorted(found)]


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with _lock_of(folder).open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _lock_of(folder: Path) -> Path:
    return folder.with_suffix(".lock")


def _running(folder: Path) -> StackDescription | None:
    """The description of a running stack. None if there is none or the machine was restarted."""
    description = StackDescription.read(folder)
    if description is None:
        return None
    known = records(folder)
    if not any(is_running(record.identity) for record in known):
        return None
    if not any(is_running(record.identity) for record in known if record.spec.name == KEEPER):
        raise Fatal("MR-8006", "a local stack runs, but its keeper has ended")
    return description


def _end_all(folder: Path, *, keep: bool = False) -> int:
    """End the keeper, our processes and the servers, in this order. Servers are killed unless their data is kept."""
    keepers, services, servers = _by_kind(records(folder))
    for record in keepers:
        end_session(record.identity, timeout_s=STOP_S)
    _, services, servers = _by_kind(records(folder))  # the keeper may have restarted some
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
    """Split into keeper, our own processes, and servers."""
    keepers = [record for record in found if record.spec.name == KEEPER]
    services = [record for record in found if record.spec.name.startswith("millrace ")]
    return keepers, services, [record for record in found if record not in keepers + services]


def _start_keeper(folder: Path) -> None:
    command = (sys.executable, "-P", "-m", "millrace.deploy.local.keeper", str(folder))
    ServerProcess(
        ProcessSpec(KEEPER, command, folder / KEEPER / "log"), dies_with_parent=False
    ).launch()
