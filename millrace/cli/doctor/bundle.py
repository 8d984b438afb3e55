"""The bundle of ``millrace doctor``: a zip file for those who help, without secrets.

    summary.txt       what the command printed
    status.json       as `millrace status --json`
    check.json        as `millrace check --json`
    documents/*.yaml  sets and tasks, which hold references to secrets only
    machine.json      versions, limits, memory, disks and the clock of this machine
    environment.json  the variables of Millrace; values that may be secret are left out
    logs/*            the last part of each log file that was named, and of the local stack's

Redacted everywhere: credentials in URLs, and values after words such as "password". The bundle is written to a new file
that only its owner can read. Not in it: rows, relay files, and other answers of servers than the findings.
"""

import json
import os
import platform
import re
import resource
import shutil
import subprocess
import time
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from millrace import __version__
from millrace.errors import URL_CREDENTIALS, Fatal
from millrace.jvm import java_program

LOG_BYTES_MAX = 1 << 20  # of each log: a day of a quiet worker
LOGS_MAX = 50
VERSION_S = 10.0  # for `java -version`
REDACTED = "[redacted]"
# the name, a separator, and the value up to the next separator; JSON and shell forms alike
_VALUE = r"(\"[^\"]*\"|'[^']*'|[^\s,;}\"')]+)"
_SECRET = re.compile(
    r"(?i)((?:password|passwd|mysql_pwd|secret|token|api[_-]?key|access_key|sasl\.jaas\.config)"
    rf"[\"']?\s*[=:(]\s*){_VALUE}"
)
# accounts in SQL, clients' -pPASSWORD, HTTP logins, private keys
_FORMS = (
    re.compile(rf"(?i)(password\s*\(\s*){_VALUE}"),
    re.compile(rf"(?i)(identified\s+(?:with\s+\S+\s+)?(?:by|as)\s+(?:password\s+)?){_VALUE}"),
    re.compile(rf"(\s-p)(?=\S){_VALUE}"),
    re.compile(rf"(?i)(authorization[\"']?\s*:\s*(?:bearer|basic)\s+){_VALUE}"),
    re.compile(r"(-----BEGIN [A-Z ]*PRIVATE KEY-----)(.*?)(?=-----END|\Z)", re.DOTALL),
)
_REFERENCE = re.compile(r"^[\"']?(?:env|file|exec):")
_SECRET_NAME = re.compile(r"(?i)password|passwd|secret|token|(?<!_tls)_key$")


@dataclass(frozen=True, slots=True, kw_only=True)
class Bundle:
    """The parts of a bundle besides those of this machine. ``logs``: paths."""

    summary: str
    status: object
    check: object
    documents: Mapping[str, str]  # name → YAML
    logs: Iterable[Path] = ()


def check_new(path: Path) -> None:
    """Fatal MR-4208 if a bundle could not be written to this file now, before an answer is waited for."""
    folder = path.absolute().parent
    reason = ""
    if os.path.lexists(path):
        reason = "it exists"
    elif not folder.is_dir():
        reason = f"{folder} is no folder"
    elif not os.access(folder, os.W_OK | os.X_OK):
        reason = f"no right to write in {folder}"
    if reason:
        raise Fatal("MR-4208", f"{path} can't be written: {reason}")


def unreadable(logs: Iterable[Path]) -> Iterator[str]:
    """The log files that the bundle will not contain, each with the reason."""
    for log in logs:
        try:
            with log.open("rb"):
                pass
        except OSError as exc:
            yield f"{log} can't be read: {exc.strerror}"


def write_bundle(path: Path, bundle: Bundle) -> None:
    """Write the zip file. Fatal MR-4208 if it exists or can't be written."""
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except OSError as exc:
        raise Fatal("MR-4208", f"{path} can't be written: {exc.strerror}") from exc
    with (
        os.fdopen(descriptor, "wb") as file,
        zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive,
    ):
        archive.writestr("summary.txt", redacted(bundle.summary))
        for name, plain in (
            ("status", bundle.status),
            ("check", bundle.check),
            ("machine", machine()),
            ("environment", environment(os.environ)),
        ):
            text = json.dumps(plain, ensure_ascii=False, indent=1, default=str)
            archive.writestr(f"{name}.json", redacted(text))
        for name, yaml in bundle.documents.items():
            archive.writestr(f"documents/{name}.yaml", redacted(yaml))
        for number, log in enumerate(list(bundle.logs)[:LOGS_MAX]):
            archive.writestr(f"logs/{number:02}-{log.parent.name}-{log.name}", _tail(log))


def redacted(text: str) -> str:
    """The text without credentials. References such as ``file:/path`` stay."""

    def hide(found: re.Match[str]) -> str:
        return found[0] if _REFERENCE.match(found[2]) else found[1] + REDACTED

    text = URL_CREDENTIALS.sub(REDACTED, text)
    for form in _FORMS:
        text = form.sub(rf"\1{REDACTED}", text)
    return _SECRET.sub(hide, text)


def environment(variables: Mapping[str, str]) -> dict[str, str]:
    """Millrace's variables. Those whose name may name a secret are shown only if they hold a reference."""
    return {
        name: REDACTED if _SECRET_NAME.search(name) and not _REFERENCE.match(value) else value
        for name, value in sorted(variables.items())
        if name.startswith("MILLRACE_")
    }


def machine() -> dict[str, object]:
    """Versions, limits and free space."""
    files_max, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    disk = shutil.disk_usage(Path.home())
    return {
        "millrace": __version__,
        "python": platform.python_version(),
        "system": platform.platform(),
        "java": _java_version(),
        "packages": _packages(),
        "processors": os.cpu_count(),
        "open_files_max": files_max,
        "memory": _memory(),
        "home_disk_left_bytes": disk.free,
        "user_id": os.getuid(),
        "time": time.time(),
    }


def _packages() -> dict[str, str]:
    found = {}
    for requirement in metadata.requires("millrace") or ():
        name = re.split(r"[^A-Za-z0-9._-]", requirement, maxsplit=1)[0]
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            found[name] = "not installed"
    return found


def _java_version() -> str:
    try:
        done = subprocess.run(
            [java_program(), "-version"],
            capture_output=True,
            text=True,
            check=False,
            timeout=VERSION_S,
        )
    except (OSError, subprocess.TimeoutExpired, Fatal) as exc:
        return f"unknown: {exc}"
    return (done.stderr or done.stdout).partition("\n")[0]


def _memory() -> dict[str, str]:
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
    except OSError:
        return {}
    pairs = (line.partition(":") for line in lines)
    return {
        name: value.strip()
        for name, _, value in pairs
        if name in ("MemTotal", "MemAvailable", "SwapFree")
    }


def _tail(log: Path) -> str:
    try:
        with log.open("rb") as file:
            file.seek(max(0, log.stat().st_size - LOG_BYTES_MAX))
            return redacted(file.read().decode(errors="replace"))
    except OSError as exc:
        return f"{log} can't be read: {exc.strerror}"
