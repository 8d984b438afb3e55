"""``millrace unsafe skip-gtid | reset-position | adopt-topic | withdraw TASK``: ways out that lose changes.

A command decides on a stopped capture task and leaves the decision in ZooKeeper. The task's next owner executes it
(``producer.publish.decided``). A command never writes to Kafka. See docs/unsafe.md.
"""

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from millrace.cli.control import Control, control, print_json
from millrace.errors import Fatal
from schemas.decision import Decision, DecisionKind

if TYPE_CHECKING:
    from millrace.cli.deciding import Situation

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    help="Let a blocked capture task continue without changes that it can't publish.",
)

Task = Annotated[str, typer.Argument(help="The capture task.", show_default=False)]
Reason = Annotated[
    str, typer.Option("--reason", help="Why; it is recorded in the topic for all readers.")
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Show what would change, and exit.")]
Yes = Annotated[bool, typer.Option("--yes", help="Do not ask.")]
Json = Annotated[
    bool, typer.Option("--json", help="Print one JSON object; needs --yes or --dry-run.")
]


@app.command("skip-gtid")
def skip_gtid(
    task: Task,
    gtid: Annotated[str, typer.Option("--gtid", help="The source transaction to leave out.")],
    reason: Reason = "",
    dry_run: DryRun = False,
    yes: Yes = False,
    json: Json = False,
) -> None:
    """Leave out one source transaction: its rows, or the rest of them, will not be in the topic."""
    from millrace.cli.deciding import decision_on, look_at
    from millrace.cli.primary import next_transaction, primary_history
    from producer.decide import skip
    from schemas.gtid import MariadbGtid, MariadbGtidSet, parse_gtid

    with control() as now:
        found = look_at(now, task)
        wanted, progress = parse_gtid(found.flavour, gtid), found.progress
        following = None
        if isinstance(wanted, MariadbGtid) and not progress.gtid_set.covers(wanted):
            assert isinstance(progress.gtid_set, MariadbGtidSet)
            following = next_transaction(found.source, progress.gtid_set, wanted.domain)
        history = primary_history(found.source)
        after = skip(progress, wanted, history=history, following=following)
        decision = decision_on(found, DecisionKind.SKIP_GTID, progress, after, reason=reason)
        _finish(now, found, decision, Mode(dry_run, yes, json))


@app.command("reset-position")
def reset_position(
    task: Task,
    gtid: Annotated[str, typer.Option("--gtid", help="The GTID set from which to continue.")],
    reason: Reason = "",
    dry_run: DryRun = False,
    yes: Yes = False,
    json: Json = False,
) -> None:
    """Continue at a later GTID set: the transactions in between will not be in the topic."""
    from millrace.cli.deciding import decision_on, look_at, refusals
    from millrace.cli.primary import primary_history
    from producer.decide import reset
    from schemas.gtid import parse_gtid_set

    with control() as now:
        found = look_at(now, task)
        wanted, progress = parse_gtid_set(found.flavour, gtid), found.progress
        after = reset(
            progress,
            wanted,
            history=primary_history(found.source),
            refusals=refusals(found, wanted),
        )
        decision = decision_on(found, DecisionKind.RESET_POSITION, progress, after, reason=reason)
        _finish(now, found, decision, Mode(dry_run, yes, json))


@app.command("adopt-topic")
def adopt_topic(
    task: Task,
    gtid: Annotated[
        str, typer.Option("--gtid", help="The GTID set to continue after, if the status has none.")
    ] = "",
    seq: Annotated[
        int, typer.Option("--seq", min=0, help="The last seq before it, if the status has none.")
    ] = 0,
    reason: Reason = "",
    dry_run: DryRun = False,
    yes: Yes = False,
    json: Json = False,
) -> None:
    """Continue in a topic that lost all its records, after the progress in the task's status."""
    from millrace.cli.deciding import decision_on, look_at
    from producer.decide import adopt
    from schemas.gtid import parse_gtid_set
    from schemas.progress import Progress

    with control() as now:
        found = look_at(now, task)
        given = Progress(parse_gtid_set(found.flavour, gtid), None, seq) if gtid else None
        progress = adopt(found.look, reported=found.reported, given=given)
        kind = DecisionKind.ADOPT_TOPIC
        decision = decision_on(found, kind, progress, progress.gtid_set, reason=reason)
        _finish(now, found, decision, Mode(dry_run, yes, json))


@app.command()
def withdraw(task: Task) -> None:
    """Remove a decision that no worker has executed yet, as after MR-3022."""
    from millrace.cli.deciding import stopped_entry

    with control() as now:
        withdrawn = now.store.withdraw(stopped_entry(now, task))
    print(
        f"task {task}: {withdrawn.kind} by {withdrawn.approval.operator} withdrawn. If a worker died executing it,"
        " `millrace topic verify` names its gap"
    )


@dataclass(frozen=True, slots=True)
class Mode:
    """The options of a decision."""

    dry_run: bool
    yes: bool
    json: bool


def _finish(now: Control, found: "Situation", decision: Decision, mode: Mode) -> None:
    """Show the consequences, ask, and leave the decision for the task's next owner."""
    from millrace.cli.deciding import consequences, lost, refusals, text_of

    kept = refusals(found, decision.before.gtid_set)
    plain = consequences(now, found, decision, kept)
    if mode.json:
        print_json(plain | {"dry_run": mode.dry_run})
    else:
        print(text_of(plain, decision))
    if mode.dry_run:
        return
    if not decision.approval.reason:
        raise Fatal("MR-4187", "no reason is given")
    if not mode.yes and (mode.json or not _agrees(lost(decision))):
        raise Fatal("MR-4187", f"{decision.kind} was not confirmed")
    now.store.decide(found.entry, decision)
    next_step = (
        f"now `millrace task resume {decision.task}`"
        if found.entry.paused_by
        else "its worker executes it now"
    )
    if not mode.json:
        print(f"task {decision.task}: {decision.kind} decided; {next_step}")


def _agrees(what: str) -> bool:
    """Whether the operator types yes."""
    print(f"{what} This can't be undone. Type yes to decide: ", end="", flush=True)
    return sys.stdin.readline().strip() == "yes"
