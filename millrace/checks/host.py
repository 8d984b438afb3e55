"""Checks this machine for `millrace check`: disk of the relay log, open files, memory, kernels, Java.

`check_host` reads; the ``judge_`` functions are pure. Nothing is created, not even the relay directory.
"""

import os
import resource
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from millrace.checks.requirement import Area, Requirement, Subject
from millrace.errors import MillraceError
from millrace.jvm import java_program
from millrace.process.installation import Extra, check_extra
from millrace.wording import counted

GIB = 2**30
OPEN_FILES_MIN = 4096  # relay files, brokers and members of some hundred tasks, with room
CAPTURE_BYTES_MIN = GIB  # kernels, 64 MiB batches of a few tasks, librdkafka's queues
APPLY_BYTES_MIN = 3 * GIB  # the JVM of Spark and its Python workers
_CGROUP = Path("/sys/fs/cgroup/memory.max")
_MEMORY = Path("/proc/meminfo")


@dataclass(frozen=True, slots=True)
class HostUse:
    """The use of this machine. ``relay_dir`` is None if it keeps no relay log.

    ``relay_free_gb``: free disk space that the purge rules of the sets keep. ``kernels``: the folder of each group of
    kernels.
    """

    relay_dir: Path | None = None
    relay_free_gb: int = 0
    applies: bool = False
    kernels: Mapping[str, Path] | None = None


def check_host(use: HostUse) -> Iterator[Requirement]:
    subject = Subject(Area.HOST, os.uname().nodename)
    if use.relay_dir is not None:
        yield judge_disk(subject, use)
    yield judge_open_files(subject, resource.getrlimit(resource.RLIMIT_NOFILE)[0])
    wanted_bytes = APPLY_BYTES_MIN if use.applies else CAPTURE_BYTES_MIN
    yield judge_memory(subject, free_memory_bytes(), wanted_bytes)
    if use.kernels is not None:
        yield judge_kernels(subject, use.kernels)
    if use.applies:
        yield _java(subject)


def judge_disk(subject: Subject, use: HostUse) -> Requirement:
    """MR-4174 if the disk of the relay log has less free space than the purge rules keep; MR-2002 if it can't be
    written."""
    assert use.relay_dir is not None
    what = "disk of the relay log"
    folder = use.relay_dir
    while not folder.exists() and folder != folder.parent:  # a worker creates it
        folder = folder.parent
    if not os.access(folder, os.W_OK | os.X_OK):
        return subject.fail(
            "MR-2002", what, found=f"{folder} can't be written", wanted="a folder of this user"
        )
    free_gb = shutil.disk_usage(folder).free / GIB
    found = f"{free_gb:.1f} GiB free at {folder}"
    if free_gb < use.relay_free_gb:
        return subject.warn(
            "MR-4174", what, found=found, wanted=f"{use.relay_free_gb} GiB (remain_gb)"
        )
    return subject.ok(what, found)


def judge_open_files(subject: Subject, limit: int) -> Requirement:
    """MR-4175 if the limit of this process is low. That of a service is not known here."""
    if 0 <= limit < OPEN_FILES_MIN:
        return subject.warn(
            "MR-4175",
            "open files",
            found=f"{limit} in this shell; a service has its own limit",
            wanted=f"at least {OPEN_FILES_MIN}, in the service",
        )
    return subject.ok("open files", f"{'unlimited' if limit < 0 else limit} in this shell")


def free_memory_bytes(*, meminfo: Path = _MEMORY, cgroup: Path = _CGROUP) -> int:
    """The memory that the system can give without swapping, at most the limit of the container. -1: unknown."""
    try:
        lines = meminfo.read_text().splitlines()
        found = next(
            int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable")
        )
    except (OSError, StopIteration, ValueError):
        return -1
    try:
        return min(found, int(cgroup.read_text()))
    except (OSError, ValueError):  # no container, or "max"
        return found


def judge_memory(subject: Subject, free_bytes: int, wanted_bytes: int) -> Requirement:
    """MR-4176 if too little is free."""
    found = f"{free_bytes / GIB:.1f} GiB free" if free_bytes >= 0 else "unknown"
    if 0 <= free_bytes < wanted_bytes:
        return subject.warn("MR-4176", "memory", found=found, wanted=f"{wanted_bytes / GIB:g} GiB")
    return subject.ok("memory", found)


def judge_kernels(subject: Subject, folders: Mapping[str, Path]) -> Requirement:
    """MR-4177 if a group of kernels has no machine code yet."""
    absent = [name for name, folder in folders.items() if not any(folder.rglob("*.nbc"))]
    if absent:
        return subject.warn(
            "MR-4177", "kernels", found=f"not compiled: {', '.join(absent)}", wanted="compiled"
        )
    return subject.ok("kernels", counted(len(folders), "group is compiled", "groups are compiled"))


def _java(subject: Subject) -> Requirement:
    """MR-8002 or MR-8011, as a warning: the apply drivers may run on other machines."""
    try:
        check_extra(Extra.APPLY, user="an apply driver")
        program = java_program()
    except MillraceError as error:
        return subject.warn(error.code, "Java and PySpark", found=error.message, fix=error.fix)
    return subject.ok("Java and PySpark", str(program))
