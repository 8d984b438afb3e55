"""``millrace task snapshot``: publish the rows that tables have already, while the task runs."""

import time
import uuid

import typer

from millrace.cli.control import Control, console, control, new_table, operator, print_json
from millrace.cli.history import shown_time
from millrace.cli.texts import duration
from millrace.errors import Fatal
from millrace.schemas.documents import CaptureTask
from millrace.schemas.plain import to_plain
from millrace.schemas.requests.snapshot_request import (
    REQUESTS_MAX,
    TABLES_MAX,
    WHERE_CHARACTERS_MAX,
    EndedSnapshot,
    SnapshotRequest,
    SnapshotRequests,
)
from millrace.schemas.snapshot import INITIAL
from millrace.schemas.stages import SnapshotStage
from millrace.wording import counted
from millrace.zk.view import read_cluster, views


def snapshot(
    name: str = typer.Argument(metavar="TASK"),
    tables: str = typer.Option(
        "", "--tables", help="Tables or patterns: shop.orders,shop.item*. Read in this order."
    ),
    where: str | None = typer.Option(
        None, "--where", help="Only rows that match this SQL condition."
    ),
    show: bool = typer.Option(
        False, "--list", help="List the snapshots that run and wait, and the last that have ended."
    ),
    stop: str = typer.Option(
        "", "--stop", metavar="ID", help="End a snapshot, or drop one that waits."
    ),
    json: bool = typer.Option(False, "--json", help="Print one JSON object."),
) -> None:
    """Publish the rows that tables have already, while the task continues with their changes.

    The task reads each table in chunks and publishes them between changes. Requests wait for each other.
    """
    if sum(map(bool, (tables, show, stop))) != 1:
        raise typer.BadParameter("give one of --tables, --list and --stop")
    with control() as now:
        task = now.store.task_entry(name).document
        if not isinstance(task, CaptureTask):
            fix = "Name a capture task: `millrace task list` shows all tasks."
            raise Fatal("MR-4240", f"{name} is not a capture task", fix=fix)
        if show:
            _list(now, name, json=json)
        elif stop:
            _stop(now, name, stop, json=json)
        else:
            _ask(now, task, _request(tables, where), json=json)


def _request(tables: str, where: str | None) -> SnapshotRequest:
    patterns = tuple(part.strip() for part in tables.split(",") if part.strip())
    for pattern in patterns:
        if "." not in pattern:
            raise typer.BadParameter(f"{pattern!r} is not DATABASE.TABLE", param_hint="--tables")
    if not 0 < len(patterns) <= TABLES_MAX:
        raise typer.BadParameter(f"give 1 to {TABLES_MAX} tables", param_hint="--tables")
    if where is not None and not where.strip():
        what = "it is empty; omit it to publish all rows"
        raise typer.BadParameter(what, param_hint="--where")
    where = where or ""
    if len(where) > WHERE_CHARACTERS_MAX:
        what = f"it has more than {WHERE_CHARACTERS_MAX} characters"
        raise typer.BadParameter(what, param_hint="--where")
    now_ms = time.time_ns() // 1_000_000
    return SnapshotRequest(uuid.uuid4().hex[:12], patterns, where, operator(), now_ms)


def _ask(now: Control, task: CaptureTask, request: SnapshotRequest, *, json: bool) -> None:
    from millrace.producer.snapshot.request_check import check_request

    document = now.store.set_entry(task.set_name).document
    checked = check_request(task, document, request)

    def added(found: SnapshotRequests) -> SnapshotRequests:
        if len(found.requests) >= REQUESTS_MAX:
            raise Fatal("MR-4242", f"{len(found.requests)} snapshots wait for {task.name}")
        return found.added(request)

    now.store.change_snapshots(task.name, added)
    names = [".".join(name) for name in checked.tables]
    left_out = {".".join(name): why for name, why in checked.left_out}
    if json:
        print_json({"id": request.id, "tables": names, "left_out": left_out})
        return
    print(f"snapshot {request.id} of {counted(len(names), 'table')} waits for the task {task.name}")
    for table, why in left_out.items():
        print(f"{table} is left out: {why}")
    print(f"`millrace task snapshot {task.name} --list` shows how far it is")


def _stop(now: Control, name: str, id_: str, *, json: bool) -> None:
    running, found = _running(now, name), now.store.snapshot_requests(name)
    known = {request.id for request in found.requests} | {running.id if running else ""}
    if id_ not in known and id_ != INITIAL:
        raise Fatal("MR-4241", f"no snapshot {id_} runs or waits for the task {name}")
    now.store.change_snapshots(name, lambda before: before.stopping(id_))
    if json:
        print_json({"id": id_, "task": name})
    else:
        print(f"snapshot {id_} of the task {name} ends")


def _list(now: Control, name: str, *, json: bool) -> None:
    running, known = _running(now, name), now.store.snapshot_requests(name)
    waiting = tuple(one for one in known.requests if running is None or one.id != running.id)
    if json:
        plain = [{"id": one.id, "tables": list(one.tables), "where": one.where} for one in waiting]
        done = [to_plain(one) for one in known.ended]
        shown = to_plain(running) if running else None
        print_json({"running": shown, "waiting": plain, "ended": done})
        return
    table = new_table("ID", "STATE", "TABLES", "WHERE", "PROGRESS")
    # the report is older than the node: one that has ended may be in both
    if running is not None and running.id not in {one.id for one in known.ended}:
        tables = ", ".join(running.asked)
        table.add_row(running.id, "runs", tables, running.where, progress_of(running))
    for one in waiting:
        table.add_row(one.id, "waits", ", ".join(one.tables), one.where, f"asked by {one.by}")
    for ended in reversed(known.ended):
        state = "stopped" if ended.is_stopped else "ended"
        table.add_row(ended.id, state, ", ".join(ended.tables), ended.where, _result(ended))
    console().print(table if table.row_count else "no snapshot runs, waits or has ended")


def progress_of(stage: SnapshotStage) -> str:
    """Such as "0 of 1 table, shop.orders: 1,234 rows, 500 rows/s, ETA 3 s; reads"."""
    parts = []
    if stage.tables is not None:
        parts.append(f"{stage.done or 0:,} of {counted(stage.tables, 'table')}")
    if stage.table:
        parts.append(f"{stage.table}: {counted(stage.rows, 'row')}")
    if stage.rates.over_10_s:
        parts.append(f"{stage.rates.over_10_s:,.0f} rows/s")
    if stage.eta_s is not None:
        parts.append(f"ETA {duration(stage.eta_s)}")
    return "; ".join(part for part in (", ".join(parts), stage.why) if part)


def _result(ended: EndedSnapshot) -> str:
    """Such as "1,234 rows in 12.0 s, 2026-11-24 14:12:12Z".."""
    span = ended.span
    rows = "an unknown number of rows" if ended.rows is None else counted(ended.rows, "row")
    took = f" in {(span.ended_ms - span.begun_ms) / 1000:,.1f} s" if span.begun_ms else ""
    return f"{rows}{took}, {shown_time(span.ended_ms)}"


def _running(now: Control, name: str) -> SnapshotStage | None:
    """The stage in the task's last report."""
    found = (view for view in views(read_cluster(now.session, now.tree)) if view.name == name)
    return next(found).report.snapshot
