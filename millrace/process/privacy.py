"""Keeps a service's files and memory to its own user. Every command that runs until a signal calls it before it creates
anything.

- Files and folders that the process creates are for this user alone (umask 077), also those of its child processes.
- A crash writes no core file: memory holds rows and passwords. Child processes, such as the JVM, inherit the limit.
- A service that runs as root warns: any fault in it would concern the whole machine.

``reader`` and ``hidden_from_services`` are for the error of a file that can't be read: most belong to another user, or
are in a folder that a hardened service does not see.

Not done here: PR_SET_DUMPABLE. It would also hide the process from its own user's profilers and debuggers, and from
/proc/self, which Java and Python read.
"""

import os
import pwd
import resource

from millrace.log import get_logger

OTHERS = 0o077  # the permissions that files and folders do not get

_TMP = (
    " A service with PrivateTmp, such as those of Millrace's units, has its own /tmp: move the file to another"
    " folder, such as /etc/millrace, and correct its path."
)
_HOME = (
    " A service with ProtectHome, such as those of Millrace's units, sees no file there: move it to another folder,"
    " such as /etc/millrace, and correct its path."
)
_HIDDEN = {"/tmp/": _TMP, "/var/tmp/": _TMP, "/home/": _HOME, "/root/": _HOME, "/run/user/": _HOME}  # noqa: S108

log = get_logger("private")


def keep_private() -> None:
    """Do all of it, for this process and the processes that it starts from now on."""
    os.umask(OTHERS)
    _, hard = resource.getrlimit(resource.RLIMIT_CORE)
    resource.setrlimit(resource.RLIMIT_CORE, (0, hard))
    if os.geteuid() == 0:
        log.warning("this service runs as root", fix="Run it as a user that owns only its folders.")


def reader() -> str:
    """The user and the machine of this process, such as "user millrace on host db7"."""
    number = os.geteuid()
    try:
        user = pwd.getpwuid(number).pw_name
    except KeyError:  # in a container
        user = str(number)
    return f"user {user} on host {os.uname().nodename}"


def hidden_from_services(path: str) -> str:
    """A sentence for the error of a file that an operator sees and a service may not; "" for another folder."""
    return next((why for folder, why in _HIDDEN.items() if path.startswith(folder)), "")
