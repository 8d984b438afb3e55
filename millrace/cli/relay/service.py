"""``millrace relay start|stop|pause|resume|status``: a set's relay, from any host, through ZooKeeper.

``start`` and ``stop`` change ``relay.mode`` in the set document, so workers keep to it after a restart. ``pause`` and
``resume`` are wishes of an operator beside the document, like those of ``millrace replica``.
"""

import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated

import typer

from millrace.cli.control import Control, control, operator, print_json
from millrace.cli.texts import duration, size
from millrace.errors import Fatal
from millrace.schemas.documents import Directives, RelayMode, SetDocument, parse_set, plain_set
from millrace.schemas.plain import to_plain
from millrace.schemas.stages import BinlogEnd, PurgeAnswer, Relayed
from millrace.zk.view import TaskView, read_cluster, views_of_set

if TYPE_CHECKING:
    from millrace.producer.relay.control import PurgeRequest

POLL_S = 0.2
OLD_S = 3.0  # workers repeat a report every 5 s

SetName = Annotated[str, typer.Argument(metavar="SET", help="The set.", show_default=False)]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]


def start(
    set_name: SetName,
    *,
    start: Annotated[
        str,
        typer.Option(
            "--from",
            help="Where to start without relay files and tasks: first, a GTID set, or a binlog file.",
        ),
    ] = "",
) -> None:
    """Receive the set's binlog from now on, also while no task runs (relay: always)."""
    with control("relay start") as now:
        document = _change_mode(now, set_name, RelayMode.ALWAYS, start)
        paused_by = now.store.directives(set_name).relay_paused_by
    print(
        f"set {set_name}: the relay runs always; if it has no files and no task, from {document.relay.start}"
    )
    if paused_by:
        print(f"it is paused by {paused_by}: `millrace relay resume {set_name}`")


def stop(set_name: SetName) -> None:
    """Receive the set's binlog only while a task of the set runs (relay: with_tasks)."""
    with control("relay stop") as now:
        _change_mode(now, set_name, RelayMode.WITH_TASKS)
    print(f"set {set_name}: the relay runs while tasks run")


def pause(set_name: SetName) -> None:
    """Stop to receive until `resume`. Tasks read on to the end of the relay log and wait there."""
    by = operator()

    def change(known: Directives) -> Directives:
        return replace(known, relay_paused_by=known.relay_paused_by or by)

    with control() as now:
        after = now.store.direct(set_name, change)
    print(f"set {set_name}: the relay is paused by {after.relay_paused_by}")


def resume(set_name: SetName) -> None:
    """Receive again after `pause`; a blocked relay tries again."""

    def change(known: Directives) -> Directives:
        return replace(known, relay_paused_by="", relay_resumed=known.relay_resumed + 1)

    with control() as now:
        now.store.direct(set_name, change)
    print(f"set {set_name}: the relay receives again if it was paused")


def status(set_name: SetName, *, as_json: Json = False) -> None:
    """Show what is received, stored and needed, and when data would be lost."""
    with control() as now:
        document = now.store.set_entry(set_name).document
        found = _find(now, set_name)
        paused_by = now.store.directives(set_name).relay_paused_by
    if found is not None and not found.is_fresh:
        found = replace(found, stage=_at_rest(found.stage, document, paused_by))
    if as_json:
        print_json(_plain(document, found))
        return
    for line in _lines(document, found):
        print(line)


def request_purge_from_afar(set_name: str, request: "PurgeRequest") -> PurgeAnswer:
    """Request a purge through the set's directives and wait for the answer in the status.

    Fatal MR-4104; MR-2012 if no worker receives the set or none answers; the errors of ``check_answer``.
    """
    from millrace.producer.relay.control import ASK_TIMEOUT_S, check_answer

    text = request.to_text()

    def withdraw(known: Directives) -> Directives:
        return replace(known, relay_purge="" if known.relay_purge == text else known.relay_purge)

    with control() as now:
        now.store.set_entry(set_name)  # Fatal MR-4104
        found = _find(now, set_name)
        if found is None or not found.is_fresh:
            raise Fatal("MR-2012", f"no worker receives set {set_name} now")
        now.store.direct(set_name, lambda known: replace(known, relay_purge=text))
        try:
            deadline_s = time.monotonic() + ASK_TIMEOUT_S
            while time.monotonic() < deadline_s:
                found = _find(now, set_name)
                answer = found.stage.purge if found is not None else None
                if answer is not None and answer.id == request.id:
                    return check_answer(answer)
                time.sleep(POLL_S)
        finally:
            now.store.direct(set_name, withdraw)
    raise Fatal("MR-2012", f"the worker did not answer in {ASK_TIMEOUT_S:g} s")


@dataclass(frozen=True, slots=True)
class _Found:
    """The newest report about the relay. ``is_fresh``: the worker that made it runs."""

    stage: Relayed
    view: TaskView
    is_fresh: bool


def _change_mode(now: Control, set_name: str, mode: RelayMode, start: str = "") -> SetDocument:
    known = now.store.set_entry(set_name).document
    rules = replace(known.relay, mode=mode, start=start or known.relay.start)
    # parsed again, because ``start`` is the operator's text
    document = parse_set(plain_set(replace(known, relay=rules)))
    now.store.create_set(document, replace=True)
    return document


def _find(now: Control, set_name: str) -> _Found | None:
    """The newest report of the set's relay or of one of its tasks; a fresh one is preferred."""
    found = [
        _Found(view.report.relayed, view, view.is_fresh)
        for view in views_of_set(read_cluster(now.session, now.tree), set_name)
        if view.report.relayed is not None
    ]
    return min(found, key=lambda each: (not each.is_fresh, each.view.age_s), default=None)


def _at_rest(stage: Relayed, document: SetDocument, paused_by: str) -> Relayed:
    """The last stage of a relay that does not run, with the time that the members keep their binlogs now."""
    from millrace.producer.source.choose.chooser import Chooser
    from millrace.producer.source.relay_status import time_to_loss_s
    from millrace.producer.source.set_stream import resolve_login

    chooser = Chooser(document, resolve_login(document), lambda _: Directives())
    chooser.look_again(None)
    kept_s = chooser.kept_s()
    return replace(
        stage,
        stage="paused" if paused_by else "stopped",
        why=f"paused by {paused_by}" if paused_by else "no worker runs it now",
        source=None,
        caught_up=None,
        kept_s=kept_s,
        time_to_loss_s=time_to_loss_s(kept_s, stage.end_at_s, is_caught_up=False),
    )


def _plain(document: SetDocument, found: _Found | None) -> dict[str, object]:
    head: dict[str, object] = {"set": document.name, "mode": document.relay.mode.value}
    if found is None:
        return head | {"worker": "", "age_s": None, "stage": "stopped"}
    worker = found.view.report.worker if found.is_fresh else ""
    return head | {"worker": worker, "age_s": round(found.view.age_s, 1), **to_plain(found.stage)}


def _lines(document: SetDocument, found: _Found | None) -> list[str]:
    head = f"relay of {document.name}  {document.relay.mode.value}"
    if found is None:
        return [f"{head}  stopped: it has not run yet"]
    stage = found.stage
    where = f" on {found.view.report.worker}" if found.is_fresh else ""
    where += f", reported {found.view.age_s:.0f} s ago" if found.view.age_s >= OLD_S else ""
    caught_up = {True: "caught up", False: "behind the source", None: ""}[stage.caught_up]
    lines = [f"{head}  {stage.stage}{where}: {stage.why}"]
    if stage.source is not None:
        lines.append(f"  source   {_place(stage.source)}")
    lines.append(f"  relay    {stage.subdir}/{_place(stage.relay)}  {caught_up}".rstrip())
    if stage.stored_bytes is not None and stage.disk_left_bytes is not None:
        used, left = (size(count) for count in (stage.stored_bytes, stage.disk_left_bytes))
        lines.append(f"  disk     {used} used, {left} left; oldest file {stage.oldest_file or '-'}")
    for task, file in sorted(stage.needed.items()):
        lines.append(f"  needed   by {task}: {file or 'more than the relay log has'}")
    if stage.time_to_loss_s is not None:
        lines.append(f"  to loss  {duration(stage.time_to_loss_s)}: {stage.loss}")
    elif stage.kept_s is None and found.is_fresh:
        lines.append(
            "  to loss  none by age: the members keep their binlogs without a limit in time"
        )
    else:
        lines.append(f"  to loss  unknown: {stage.loss}")
    return lines


def _place(end: BinlogEnd) -> str:
    pos = "" if end.pos is None else f":{end.pos}"
    return f"{end.file or '-'}{pos}  {end.gtid_set or '-'}"
