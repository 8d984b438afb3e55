"""``millrace worker``: runs a capture worker until SIGTERM. ``millrace worker list | drain | undrain`` manage all."""

import sys
import time
from pathlib import Path
from typing import Annotated

import typer

from millrace.cli.control import Control, console, control, new_table, operator, print_json
from millrace.cli.options import Http, Labels, Sets, labels_of
from millrace.errors import Retryable
from millrace.machine_code import compile_ahead
from millrace.process.privacy import keep_private
from millrace.schemas.documents import TaskKind
from millrace.zk.lease.membership import WorkerIdentity, process_name
from millrace.zk.placement.assignment import listed
from millrace.zk.placement.fleet import (
    BEFORE_VERSIONS,
    WorkerView,
    check_drain,
    read_fleet,
    worker_named,
    worker_views,
)
from millrace.zk.placement.nodes import drain_content
from millrace.zk.tree.store import Store

POLL_S = 0.5

app = typer.Typer(
    add_completion=False,
    help="Run a capture worker: from source sets to Kafka. SIGTERM shuts it down cleanly."
    " The subcommands are about all workers and apply drivers.",
)
Json = Annotated[bool, typer.Option("--json", help="Print one JSON array.")]
RelayDir = Annotated[
    Path | None,
    typer.Option(
        "--relay-dir",
        help="The directory of the relay logs; each set has a subdirectory. Required to run a worker.",
    ),
]
Name = Annotated[
    str, typer.Option(help="The worker's name in `millrace status`; host-pid by default.")
]


@app.callback(invoke_without_command=True)
def run(
    context: typer.Context,
    *,
    relay_dir: RelayDir = None,
    name: Name = "",
    label: Labels = [],  # noqa: B006 - Typer copies it
    capacity: Sets = None,
    http: Http = "",
) -> None:
    """Without a subcommand, run a capture worker."""
    if context.invoked_subcommand is not None:
        return
    if relay_dir is None:
        context.fail("Missing option '--relay-dir'.")
    worker = WorkerIdentity(
        name=process_name(name),
        kind=TaskKind.CAPTURE,
        relays=lambda: relay_sets(relay_dir),
        labels=labels_of(label),
        capacity=capacity,
    )
    sys.exit(run_capture(worker, relay_dir, http))


def run_capture(worker: WorkerIdentity, relay_dir: Path, http: str) -> int:
    """Run a capture worker until a signal. Returns the exit status."""
    from millrace.http import open_page
    from millrace.producer.source.set_stream import Site
    from millrace.producer.source.set_streams import Upstreams
    from millrace.producer.task.capture import CaptureRunner
    from millrace.zk.ensemble import Ensemble
    from millrace.zk.run.worker import run_worker

    keep_private()
    compile_ahead()  # a standby must not begin with it when it takes over

    def runner(store: Store) -> CaptureRunner:
        site = Site(root=relay_dir, installation=store.installation, directives=store.directives)
        return CaptureRunner(store, Upstreams(site), worker.name)

    with open_page(http) as page:
        return run_worker(worker, runner, ensemble=Ensemble.from_environment(), page=page)


def relay_sets(relay_dir: Path) -> list[str]:
    """The sets that have a subdirectory; none when the directory does not exist yet."""
    try:
        return [entry.name for entry in relay_dir.iterdir() if entry.is_dir()]
    except OSError:
        return []


@app.command("list")
def list_workers(json: Json = False) -> None:
    """List all workers and apply drivers: what they run, their labels, capacity, and whether they take more."""
    with control() as now:
        found = worker_views(read_fleet(now.session, now.tree))
    now_ms = time.time_ns() // 1_000_000
    if json:
        print_json([_as_plain(member) for member in found])
        return
    table = new_table(
        *("WORKER", "KIND", "HOST", "VERSION", "SINCE"),
        *("UNITS", "TASKS", "LABELS", "TAKES MORE"),
    )
    for member in found:
        its = member.worker
        labels = ", ".join(sorted(its.labels)) if its else ""
        capacity = f"/{its.capacity}" if its and its.capacity is not None else ""
        table.add_row(
            member.name,
            its.kind.value if its else "-",
            its.host if its else "-",
            (its.version or BEFORE_VERSIONS) if its else "-",
            age(now_ms - its.since_ms) if its and its.since_ms else "-",
            f"{member.units}{capacity}",
            str(member.tasks),
            labels or "-",
            takes_more(member),
        )
    console().print(table if found else "no workers: millrace worker --relay-dir DIR")


@app.command()
def drain(
    name: Annotated[str, typer.Argument(metavar="WORKER")],
    timeout: Annotated[
        float, typer.Option(min=0.0, help="Seconds to wait until it runs no task.")
    ] = 120.0,
) -> None:
    """Move all tasks away from a worker, few at a time. It gets none until undrain, also after its restart."""
    with control() as now:
        check_drain(read_fleet(now.session, now.tree), name)
        now.session.create(now.tree.drained(name), drain_content(by=operator()))
        _wait_until_empty(now, name, timeout)
    print(f"worker {name} is drained and runs no task")


@app.command()
def undrain(name: Annotated[str, typer.Argument(metavar="WORKER")]) -> None:
    """Let a drained worker get tasks again. Those that it had return to it first."""
    with control() as now:
        fleet = read_fleet(now.session, now.tree)
        if name not in fleet.drained:
            worker_named(fleet, name)
            print(f"worker {name} is not drained: it gets tasks already")
            return
        now.session.delete(now.tree.drained(name), version=-1)
    print(f"worker {name} gets tasks again")


def _wait_until_empty(now: Control, name: str, timeout_s: float) -> None:
    deadline_s = time.monotonic() + timeout_s
    while tasks := read_fleet(now.session, now.tree).tasks_of(name):
        if time.monotonic() > deadline_s:
            what = f"{name} is drained and still has {listed(tasks)} after {timeout_s:g} s"
            raise Retryable("MR-4124", what)
        time.sleep(POLL_S)


def takes_more(member: WorkerView) -> str:
    """Whether the worker receives units, and if not, why."""
    its = member.worker
    if its is None:
        return "no: drained, not running"
    if member.is_drained:
        return "no: drained"
    if its.capacity is not None and member.units >= its.capacity:
        return "no: full"
    if member.is_settled is None:
        return "no scheduler is running"
    return "yes" if member.is_settled else "not yet: registered recently"


def age(ms: int) -> str:
    """Such as 12 s, 5 min, 3 h, 2 d. Clocks may differ a little."""
    seconds = max(0, ms // 1000)
    for unit, size in (("d", 86_400), ("h", 3600), ("min", 60)):
        if seconds >= size:
            return f"{seconds // size} {unit}"
    return f"{seconds} s"


def _as_plain(member: WorkerView) -> dict[str, object]:
    its = member.worker
    return {
        "worker": member.name,
        "kind": its.kind.value if its else None,
        "host": its.host if its else None,
        "version": (its.version or None) if its else None,
        "since_ms": its.since_ms if its else None,
        "labels": sorted(its.labels) if its else [],
        "capacity": its.capacity if its else None,
        "units": member.units,
        "tasks": member.tasks,
        "drained": member.is_drained,
        "settled": member.is_settled,
    }
