"""``millrace replica list | pin | unpin | drain | undrain``: the members of a set, and which of them is read.

``list`` prints what the worker that reads the set has found, and how old that is. Without such a worker it asks the
members itself.
"""

from collections.abc import Callable, Collection
from dataclasses import asdict, replace

import typer

from millrace.cli.control import Control, console, control, new_table, print_json
from millrace.errors import Fatal
from millrace.schemas.documents import Directives, Member, SetDocument
from millrace.schemas.stages import MemberView
from millrace.zk.tree.reports import REPEAT_S
from millrace.zk.view import TaskView, read_cluster, views_of_set

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    help="Show the members of a set; pin or drain one of them.",
)


@app.command("list")
def list_members(
    set_name: str = typer.Argument(..., metavar="SET"),
    json: bool = typer.Option(False, "--json", help="Print a JSON array, one object a member."),
) -> None:
    """Show every member: role, lag, and why it is read or not."""
    with control() as now:
        document = now.store.set_entry(set_name).document
        directives = now.store.directives(set_name)
        found = _find_report(now, set_name)
    captured = found.report.captured if found is not None else None
    members = captured.members if captured is not None else _ask(document, directives)
    age_s = 0.0 if found is None else round(found.age_s, 1)
    if json:
        print_json([asdict(member) | {"age_s": age_s} for member in members])
        return
    table = new_table("MEMBER", "ROLE", "LAG", "MISSING", "CHOSEN", "WHY")
    for view in members:
        table.add_row(
            f"{view.host}:{view.port}",
            view.role,
            "-" if view.lag_s is None else f"{view.lag_s:.1f} s",
            "-" if view.missing is None else str(view.missing),
            "yes" if view.chosen else "",
            _marks(Member(view.host, view.port), directives) + view.why,
        )
    console().print(table)
    print(origin_text(found))
    for switch in captured.switches if captured is not None else ():
        print(
            f"{switch.at}  {switch.source} -> {switch.target}  gap {switch.gap_s:.1f} s  {switch.why}"
        )


@app.command()
def pin(
    set_name: str = typer.Argument(..., metavar="SET"),
    member: str = typer.Argument(..., metavar="HOST:PORT"),
) -> None:
    """Read this member while it is admissible, whatever its lag."""
    chosen = _direct(set_name, member, lambda known, wanted: replace(known, pinned=wanted))
    print(f"set {set_name}: {chosen} is pinned")


@app.command()
def unpin(
    set_name: str = typer.Argument(..., metavar="SET"),
    member: str = typer.Argument(..., metavar="HOST:PORT"),
) -> None:
    """Choose by lag again."""

    def change(known: Directives, wanted: Member) -> Directives:
        return replace(known, pinned=None if known.pinned == wanted else known.pinned)

    chosen = _direct(set_name, member, change, ends=True)
    print(f"set {set_name}: {chosen} is no longer pinned")


@app.command()
def drain(
    set_name: str = typer.Argument(..., metavar="SET"),
    member: str = typer.Argument(..., metavar="HOST:PORT"),
) -> None:
    """Leave this member and do not read it until `undrain`: for maintenance."""

    def change(known: Directives, wanted: Member) -> Directives:
        return replace(known, drained=known.drained | {wanted})

    chosen = _direct(set_name, member, change)
    print(f"set {set_name}: {chosen} is drained")
    with control() as now:
        drained = now.store.directives(set_name).drained
        if drained.issuperset(now.store.set_entry(set_name).document.members):
            print("every member is drained: a running stream keeps the one that it reads")


@app.command()
def undrain(
    set_name: str = typer.Argument(..., metavar="SET"),
    member: str = typer.Argument(..., metavar="HOST:PORT"),
) -> None:
    """Allow this member to be read again."""

    def change(known: Directives, wanted: Member) -> Directives:
        return replace(known, drained=known.drained - {wanted})

    chosen = _direct(set_name, member, change, ends=True)
    print(f"set {set_name}: {chosen} may be read again")


def _direct(
    set_name: str,
    text: str,
    change: Callable[[Directives, Member], Directives],
    *,
    ends: bool = False,
) -> Member:
    """Change the wishes about a member. One that ``ends`` may be about a member that the document no longer has."""
    with control() as now:
        document = now.store.set_entry(set_name).document
        known = now.store.directives(set_name) if ends else Directives()
        wished = known.drained | {member for member in (known.pinned,) if member is not None}
        member = _member(document, text, wished - set(document.members))
        now.store.direct(set_name, lambda known: change(known, member))
    return member


def _member(document: SetDocument, text: str, former: Collection[Member]) -> Member:
    """The member with this address, of the document or of ``former``. Fatal MR-4110."""
    members = (*document.members, *former)
    for member in members:
        if text in (str(member), member.host) and (
            text == str(member) or sum(other.host == text for other in members) == 1
        ):
            return member
    known = ", ".join(map(str, document.members))
    raise Fatal(
        "MR-4110", f"set {document.name} has no member {text}; it has {known}", set=document.name
    )


def origin_text(found: TaskView | None) -> str:
    """The process that has found the figures, and their age."""
    if found is None:
        return "no worker reads the set: this command has asked the members just now"
    return (
        f"as {found.report.worker} found them, reported {found.age_s:.0f} s ago; it reports every"
        f" {REPEAT_S:.0f} s, and a drain or a pin shows in its next report"
    )


def _find_report(now: Control, set_name: str) -> TaskView | None:
    """A running task of the set with the newest report; None if none has a fresh one."""
    found = views_of_set(read_cluster(now.session, now.tree), set_name)
    fresh = [view for view in found if view.is_fresh and view.report.captured]
    return min(fresh, key=lambda view: view.age_s, default=None)


def _ask(document: SetDocument, directives: Directives) -> tuple[MemberView, ...]:
    from millrace.producer.source.choose.chooser import Chooser
    from millrace.producer.source.set_stream import resolve_login

    chooser = Chooser(document, resolve_login(document), lambda _: directives)
    chooser.renew_directives()
    chooser.look_again(None)
    return chooser.views((), chosen=None)


def _marks(member: Member, directives: Directives) -> str:
    marks = [
        *(["pinned"] if member == directives.pinned else []),
        *(["drained"] if member in directives.drained else []),
    ]
    return "".join(f"{mark}; " for mark in marks)
