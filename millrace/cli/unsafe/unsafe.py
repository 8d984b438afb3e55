"""``millrace unsafe COMMAND TASK``: ways out that lose changes. See docs/unsafe.md.

``skip-gtid``, ``reset-position`` and ``adopt-topic`` decide on a stopped capture task and leave the decision in
ZooKeeper. The task's next owner executes it (``producer.publish.opening``). ``follow-topic`` decides on a
stopped apply task, on its target. A command never writes to Kafka.
"""

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from millrace.cli.control import Control, control, print_json
from millrace.errors import Fatal, naming
from millrace.schemas.requests.decision import Decision, DecisionKind

if TYPE_CHECKING:
    from millrace.cli.unsafe.decision import Situation

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    help="Let a blocked task continue without changes that it can't publish or apply.",
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
    from millrace.cli.task.primary import next_transaction, primary_history
    from millrace.cli.unsafe.decision import decision_on
    from millrace.producer.publish.decision import skip
    from millrace.schemas.gtid import MariadbGtid, MariadbGtidSet, parse_gtid

    with control() as now, naming(task=task):
        found = _look(now, task)
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
    from millrace.cli.task.primary import primary_history
    from millrace.cli.unsafe.decision import decision_on, refusals
    from millrace.producer.publish.decision import reset
    from millrace.schemas.gtid import parse_gtid_set

    with control() as now, naming(task=task):
        found = _look(now, task)
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
    from millrace.cli.unsafe.decision import decision_on
    from millrace.producer.publish.decision import adopt
    from millrace.schemas.gtid import parse_gtid_set
    from millrace.schemas.progress import Progress

    with control() as now, naming(task=task):
        found = _look(now, task)
        given = Progress(parse_gtid_set(found.flavour, gtid), None, seq) if gtid else None
        progress = adopt(found.look, reported=found.reported, given=given)
        kind = DecisionKind.ADOPT_TOPIC
        decision = decision_on(found, kind, progress, progress.gtid_set, reason=reason)
        _finish(now, found, decision, Mode(dry_run, yes, json))


@app.command("follow-topic")
def follow_topic(
    task: Annotated[str, typer.Argument(help="The apply task.", show_default=False)],
    reason: Annotated[
        str, typer.Option("--reason", help="Why; it is recorded on the target.")
    ] = "",
    dry_run: DryRun = False,
    yes: Yes = False,
    json: Json = False,
) -> None:
    """Let an apply task continue in a topic that was adopted, without the changes that it misses."""
    from millrace.cli.unsafe.follow_topic import consequences, decide, following, lost, text_of

    with control() as now, following(now, task) as found:
        plain = consequences(found)
        if json:
            print_json(plain | {"dry_run": dry_run})
        else:
            print(text_of(plain))
        if dry_run:
            return
        _check_confirmed("follow-topic", lost(plain), reason=reason, mode=Mode(dry_run, yes, json))
        decide(found, reason=reason)
    if not json:
        print(f"task {task}: follow-topic decided; now `millrace task resume {task}`")


@app.command()
def withdraw(task: Task) -> None:
    """Remove a decision that no worker has executed yet, as after MR-3022."""
    from millrace.cli.unsafe.decision import stopped_entry

    with control() as now, naming(task=task):
        withdrawn = now.store.withdraw(stopped_entry(now, task))
    print(
        f"task {task}: {withdrawn.kind} by {withdrawn.approval.operator} withdrawn. If a worker died executing it,"
        " `millrace topic verify` names its gap"
    )


def _look(now: Control, task: str) -> "Situation":
    """The values that a decision depends on. A note on standard error says if there is nothing to decide."""
    from millrace.cli.unsafe.decision import look_at

    found = look_at(now, task)
    if found.needless:
        print(f"note: {found.needless}", file=sys.stderr)
    return found


@dataclass(frozen=True, slots=True)
class Mode:
    dry_run: bool
    yes: bool
    json: bool


def _finish(now: Control, found: "Situation", decision: Decision, mode: Mode) -> None:
    """Show the consequences, ask, and leave the decision for the task's next owner."""
    from millrace.cli.unsafe.decision import consequences, lost, refusals, text_of

    kept = refusals(found, decision.before.gtid_set)
    plain = consequences(now, found, decision, kept)
    if mode.json:
        print_json(plain | {"dry_run": mode.dry_run})
    else:
        print(text_of(plain, decision))
    if mode.dry_run:
        return
    reason = decision.approval.reason
    _check_confirmed(decision.kind, lost(decision), reason=reason, mode=mode)
    now.store.decide(found.entry, decision)
    next_step = (
        f"now `millrace task resume {decision.task}`"
        if found.entry.paused_by
        else "its worker executes it now"
    )
    if not mode.json:
        print(f"task {decision.task}: {decision.kind} decided; {next_step}")


def _check_confirmed(kind: str, what: str, *, reason: str, mode: Mode) -> None:
    """Fatal MR-4187 if the reason or the operator's yes is missing."""
    if not reason:
        raise Fatal("MR-4187", "no reason is given")
    if not mode.yes and (mode.json or not _agrees(what)):
        raise Fatal("MR-4187", f"{kind} was not confirmed")


def _agrees(what: str) -> bool:
    """Whether the operator types yes."""
    print(f"{what} This can't be undone. Type yes to decide: ", end="", flush=True)
    return sys.stdin.readline().strip() == "yes"
