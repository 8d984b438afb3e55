"""8xxx: installation and local servers."""

from millrace.codes.code import Branch, Code

CODES: tuple[Code, ...] = (
    Code(
        "MR-8001",
        "two installations are mixed",
        "The packages of Millrace were loaded from more than one folder, so an old copy may be running.",
        "Uninstall the other copy (`pip uninstall millrace`) or start from a fresh virtual environment.",
        Branch.OPERATOR,
    ),
    Code(
        "MR-8002",
        "a needed program is missing",
        "A program that can't be fetched is not installed.",
        "Install the named program with the system's package manager.",
        Branch.OPERATOR,
    ),
    Code(
        "MR-8003",
        "a download failed",
        "A server could not be fetched into the cache.",
        "Check the network and run `make setup` again; what was fetched is kept.",
        Branch.OPERATOR,
    ),
    Code(
        "MR-8004",
        "a local server did not start",
        "An embedded server ended or did not answer in time while it was started.",
        "Read the last lines of its log above; free memory and disk, then start again.",
        Branch.OPERATOR,
    ),
    Code(
        "MR-8005",
        "a server program is not in the cache",
        "The embedded servers have not been fetched, this flavour can't be fetched on this system, or what was given is"
        " not a MySQL of 9.7 or later.",
        "Run `make setup`, or `python -m deploy.servers.fetch` where pip installed Millrace; for MySQL give your own (9.7 or later) with `--mysqld PATH` or MILLRACE_MYSQLD=PATH.",
        Branch.OPERATOR,
    ),
    Code(
        "MR-8006",
        "the local stack is in the way",
        "`millrace up` found servers of a stack that run on although the process that keeps them has ended.",
        "End them with `millrace down`, then `millrace up` again.",
        Branch.OPERATOR,
    ),
    Code(
        "MR-8007",
        "a local server refused a statement",
        "An embedded server answered the set-up of the local stack with an error or not at all.",
        "Read the server's log in the stack's folder; end the stack with `millrace down` and start again.",
        Branch.OPERATOR,
    ),
    Code(
        "MR-8008",
        "Millrace's folder can't be made",
        "What is fetched, compiled and started locally is kept in a folder that this user may not make, or has no home for.",
        "Set MILLRACE_HOME to a folder that this user may write, with a few GB of room.",
        Branch.OPERATOR,
    ),
    Code(
        "MR-8009",
        "an address can't be listened at",
        "Another process listens there, the address is none of this machine's, or this user may not take the port.",
        "Choose another --port or --host; `ss -ltnp` shows who listens.",
        Branch.OPERATOR,
    ),
    Code(
        "MR-8010",
        "the local stack does not run",
        "The command is about the local stack of this name, and none is complete.",
        "Start it with `millrace up`, or name another with --name or MILLRACE_STACK.",
        Branch.OPERATOR,
    ),
    Code(
        "MR-8011",
        "an optional part is not installed",
        "`pip install millrace` installs what a capture host needs. Spark and the local stack are extras.",
        "Install the extra that the message names: `pip install 'millrace[apply]'` or `pip install 'millrace[local]'`.",
        Branch.OPERATOR,
    ),
)
