"""8xxx: installation and local servers."""

from millrace.codes.code import Branch, Code

CODES: tuple[Code, ...] = (
    Code(
        "MR-8001",
        "two installations are mixed",
        "Python loaded the packages of Millrace from more than one folder, so an old copy may be running.",
        "Uninstall the other copy (`pip uninstall millrace`), or use a new virtual environment.",
        Branch.OPERATOR,
    ),
    Code(
        "MR-8002",
        "a required program is missing",
        "The program is not installed, and Millrace can't download it.",
        "Install the program that the message names with the system's package manager.",
        Branch.OPERATOR,
    ),
    Code(
        "MR-8003",
        "a download failed",
        "A server could not be downloaded into the cache.",
        "Check the network and run `make setup` again. Finished downloads are kept.",
        Branch.OPERATOR,
    ),
    Code(
        "MR-8004",
        "a local server did not start",
        "The server ended during its start, or did not answer in time.",
        "Read the last lines of its log in the message. Free memory and disk space, then start again.",
        Branch.OPERATOR,
    ),
    Code(
        "MR-8005",
        "a server program is missing in the cache",
        "The local servers have not been downloaded, this flavour can't be downloaded on this system, or the given program"
        " is not MySQL 9.7 or later.",
        "Run `make setup`, or `python -m deploy.servers.fetch` if pip installed Millrace. For MySQL, give your own server"
        " (9.7 or later) with `--mysqld PATH` or MILLRACE_MYSQLD=PATH.",
        Branch.OPERATOR,
    ),
    Code(
        "MR-8006",
        "servers of an earlier local stack still run",
        "The process that managed the stack has ended, but its servers have not.",
        "Stop them with `millrace down`, then run `millrace up` again.",
        Branch.OPERATOR,
    ),
    Code(
        "MR-8007",
        "a local server could not be set up",
        "The server answered a set-up statement of the local stack with an error, or not at all.",
        "Read the server's log in the stack's folder. Stop the stack with `millrace down` and start it again.",
        Branch.OPERATOR,
    ),
    Code(
        "MR-8008",
        "Millrace's folder can't be created",
        "Downloads, compiled kernels and local servers need a folder. This user may not create it, or has no home folder.",
        "Set MILLRACE_HOME to a folder that this user can write to, with a few GB of free space.",
        Branch.OPERATOR,
    ),
    Code(
        "MR-8009",
        "a service can't listen on its address",
        "Another process uses the port, the address does not belong to this machine, or this user may not use the port.",
        "Choose another --port or --host. `ss -ltnp` lists the processes that listen.",
        Branch.OPERATOR,
    ),
    Code(
        "MR-8010",
        "the local stack is not running",
        "The command needs the local stack of this name, and that stack is not running completely.",
        "Start it with `millrace up`, or name another stack with --name or MILLRACE_STACK.",
        Branch.OPERATOR,
    ),
    Code(
        "MR-8011",
        "an optional part is not installed",
        "The plain wheel installs what a capture host needs. Spark and the local stack are extras.",
        "Install the extra with the versions of `constraints.txt`, in the folder that has it and the wheel:"
        ' `pip install -c constraints.txt "$(ls millrace-*.whl)[apply]"`, or `[local]` for the local stack. In a checkout: `make setup`.',
        Branch.OPERATOR,
    ),
    Code(
        "MR-8012",
        "the command needs a checkout",
        "The wheel does not contain the benchmarks, which build and start the peers that Millrace is measured beside.",
        "Run `make setup` and `.venv/bin/millrace bench` in a checkout of Millrace.",
        Branch.OPERATOR,
    ),
    Code(
        "MR-8020",
        "the address for metrics is malformed",
        "The address at which a process shows its metrics and health is not HOST:PORT.",
        "Set --http or MILLRACE_HTTP to HOST:PORT, for example 127.0.0.1:9471. Port 0 takes a free one, `none` turns it off.",
        Branch.OPERATOR,
    ),
    Code(
        "MR-8030",
        "the local stack that runs is not secured",
        "`millrace up --secure` found a stack of this name that was started without --secure. A running stack is not changed.",
        "Run `millrace down` and `millrace up --secure`, or start a second stack with --name.",
        Branch.OPERATOR,
    ),
)
