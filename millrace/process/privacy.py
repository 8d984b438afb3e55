"""Keeps a service's files and memory to its own user. Every command that runs until a signal calls it before it creates
anything.

- Files and folders that the process creates are for this user alone (umask 077), also those of its child processes.
- A crash writes no core file: memory holds rows and passwords. Child processes, such as the JVM, inherit the limit.
- A service that runs as root warns: any fault in it would concern the whole machine.

Not done here: PR_SET_DUMPABLE. It would also hide the process from its own user's profilers and debuggers, and from
/proc/self, which Java and Python read.
"""

import os
import resource

from millrace.log import get_logger

OTHERS = 0o077  # the permissions that files and folders do not get

log = get_logger("private")


def keep_private() -> None:
    """Do all of it, for this process and the processes that it starts from now on."""
    os.umask(OTHERS)
    _, hard = resource.getrlimit(resource.RLIMIT_CORE)
    resource.setrlimit(resource.RLIMIT_CORE, (0, hard))
    if os.geteuid() == 0:
        log.warning("this service runs as root", fix="Run it as a user that owns only its folders.")
