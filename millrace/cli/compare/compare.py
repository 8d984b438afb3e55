"""``millrace compare TASK``: compares every row of source and target, and repairs; exits with 1 on a difference."""

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from millrace.cli.apply import Conf
from millrace.cli.compare.text import print_plain, print_text
from millrace.cli.control import Control, control
from millrace.errors import Fatal, naming
from millrace.schemas.documents import (
    ApplyTask,
    PublishTask,
    SetDocument,
    StructureRule,
    TaskDocument,
    address_of,
)
from millrace.zk.tree.entries import TaskEntry

if TYPE_CHECKING:
    from millrace.consumer.compare import Comparison, Ends, Work
    from millrace.consumer.compare.members import ReadMember, Wishes
    from millrace.consumer.compare.pool import Pool
    from millrace.consumer.compare.tables import Admits
    from millrace.drivers.mysql.connection import Endpoint

Timeout = Annotated[
    float,
    typer.Option(
        min=0.0, help="Seconds to wait first, until all changes are applied, and later for a chunk."
    ),
]
Now = Annotated[bool, typer.Option("--now", help="Compare now, without waiting.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]
Repair = Annotated[bool, typer.Option("--repair", help="Write the source's rows to the target.")]
Yes = Annotated[bool, typer.Option("--yes", help="Repair without asking.")]
Resume = Annotated[
    bool, typer.Option("--resume", help="Continue the last comparison, which was interrupted.")
]
Lag = Annotated[
    float | None,
    typer.Option("--max-lag-s", min=0.0, help="Pause while the target is later than this."),
]
Running = Annotated[
    int | None,
    typer.Option(min=1, help="Pause while either server has more Threads_running."),
]
ThreadCount = Annotated[
    int, typer.Option("--threads", min=1, max=64, help="Chunks at the same time.")
]
Structure = Annotated[
    StructureRule | None,
    typer.Option(
        help="Definitions that differ: listed; also exit code 1; or not read. Default: as in the task's document.",
        show_default=False,
    ),
]
Master = Annotated[
    str,
    typer.Option(help="Compare in Spark: local[N], spark://…, yarn, k8s://….", show_default=False),
]


def compare(
    task: str,
    *,
    timeout: Timeout = 60.0,
    now: Now = False,
    json: Json = False,
    repair: Repair = False,
    yes: Yes = False,
    resume: Resume = False,
    max_lag_s: Lag = None,
    max_threads_running: Running = None,
    structure: Structure = None,
    threads: ThreadCount = 4,
    master: Master = "",
    conf: Conf = [],  # noqa: B006 - Typer copies it
) -> None:
    """Compare every row of an apply task's source and target set. A capture task stands for its only apply task."""
    from millrace.consumer.compare import Throttle, Work

    if now and (repair or resume):
        raise Fatal("MR-5125", f"--now and --{'repair' if repair else 'resume'} are given")
    work = Work(Throttle(max_lag_s, max_threads_running), repairs=repair)
    with (
        control() as cluster
    ):  # also during the comparison: an operator may drain the member that is read
        found = _scope(cluster, task)
        if repair and not yes and (json or not _agrees(found)):
            raise Fatal("MR-5127", f"no row of {found.task.name} is changed")
        if not now:
            _wait(cluster, found, timeout)
        rule = structure or found.task.rules.compare.structure
        asked = _Asked(
            work=work,
            timeout_s=timeout,
            waits=not now,
            resumes=resume,
            with_structure=rule is not StructureRule.IGNORE,
        )
        with (
            naming(task=found.task.name, set=found.task.target),
            _pools(found.task.name, threads, master, conf) as pool,
        ):
            origin, compared = _compared(found, asked, pool)
    if json:
        print_plain(found.task.name, origin, compared, has_waited=not now)
    else:
        print_text(origin, compared, has_waited=not now)
    fails = rule is StructureRule.FAIL and compared.structure_count
    sys.exit(1 if fails or not compared.is_done else 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Asked:
    """The options of the command. ``waits``: for the task; otherwise nothing is stored."""

    work: "Work"
    timeout_s: float
    waits: bool
    resumes: bool
    with_structure: bool


@dataclass(frozen=True, slots=True)
class _Scope:
    """The tables that both tasks have, the source set with an operator's wishes about it, and the target's primary."""

    task: ApplyTask
    admits: "Admits"
    source: SetDocument
    wishes: "Wishes"
    target: "Endpoint"


def _scope(cluster: Control, name: str) -> _Scope:
    from millrace.cli.task.wait import capture_task_of
    from millrace.consumer.compare.tables import admitted
    from millrace.drivers.mysql.primary import primary_member

    document = apply_task_of(cluster, cluster.store.task_entry(name).document)
    captured = capture_task_of(cluster, document)
    source = cluster.store.set_entry(captured.set_name).document
    target = primary_member(cluster.store.set_entry(document.target).document, for_writing=False)
    admits = admitted(source, captured, document)
    wishes = partial(cluster.store.directives, source.name)
    return _Scope(document, admits, source, wishes, target)


def _agrees(found: _Scope) -> bool:
    """Whether the operator types yes."""
    at = f"{found.target.host}:{found.target.port}"
    print(f"Rows of {at} that differ get the values of the source. Type yes: ", end="", flush=True)
    return sys.stdin.readline().strip() == "yes"


def _wait(cluster: Control, found: _Scope, timeout_s: float) -> None:
    """Wait until the task has applied all changes. If a row blocks it, the fix of MR-4202 names its table."""
    from millrace.cli.task.wait import wait_until_arrived

    try:
        wait_until_arrived(cluster, found.task.name, timeout_s=timeout_s)
    except Fatal as exc:
        if exc.context.get("blocked_by") != "MR-5010":
            raise
        name, tables = found.task.name, ",".join(_blocking_tables(found)) or "DB.TABLE"
        fix = (
            f"`millrace task load {name} --tables {tables}` and `millrace task resume {name}` copy the rows"
            f" of the table again. `millrace compare {name} --now` lists the differences before."
        )
        raise Fatal(exc.code, exc.message, fix=fix, **exc.context) from exc


def _blocking_tables(found: _Scope) -> list[str]:
    """The tables whose changes block the task, as the source names them."""
    from millrace.consumer.target.conflicts import STOP, read_tables
    from millrace.drivers.mysql.connection import connect

    with closing(connect(found.target)) as session:
        return read_tables(session, found.task.name, decision=STOP)


@contextmanager
def _pools(
    task: str, count: int, master: str, conf: Sequence[str]
) -> Iterator[Callable[["Ends"], "Pool"]]:
    """Makes a pool for two sides: threads of this process, or executors of this master."""
    from millrace.consumer.compare import Executors, Threads

    if not master:
        yield lambda ends: Threads(ends, count)
        return
    from millrace.consumer.spark.session import SparkDriver, settings_of

    driver = SparkDriver(master=master, settings=settings_of(conf), name="millrace-compare")
    try:
        yield lambda ends: Executors(driver.comparisons(task), ends, count)
    finally:
        driver.stop()


def _compared(
    found: _Scope, asked: _Asked, pool: Callable[["Ends"], "Pool"]
) -> tuple["ReadMember", "Comparison"]:
    """The member of the source set that was read, and the result."""
    from millrace.consumer.compare import Ends, Rules, State, compare_sets
    from millrace.consumer.compare.members import Watch, from_members

    def compare(origin: "ReadMember") -> tuple["ReadMember", "Comparison"]:
        task = found.task.name if asked.waits else ""
        ends = Ends(origin.source, found.target, task, asked.timeout_s, origin.primary)
        watch = Watch(origin, found.wishes)
        rules = Rules(
            work=asked.work,
            pool=pool(ends),
            state=state,
            seen=lambda _: watch.look(),
            with_structure=asked.with_structure,
            view=found.task.view,
        )
        return origin, compare_sets(ends, found.admits, written_by=found.task.name, rules=rules)

    with ExitStack() as opened:
        state = None
        if asked.waits:
            state = State.begin(found.target, found.task.name, resumes=asked.resumes)
            opened.callback(state.close)
        return from_members(
            found.source,
            found.wishes,
            wait_s=asked.timeout_s,
            compare=compare,
            is_stored=state is not None,
        )


def apply_task_of(now: Control, task: TaskDocument) -> ApplyTask:
    """The task, or the only apply task of a capture task's topic. Fatal MR-5060 for none or several."""
    if isinstance(task, ApplyTask):
        return task
    if isinstance(task, PublishTask):
        raise Fatal("MR-5060", f"{task.name} is a publish task, which has no target set")
    entries = now.store.tasks().values()
    documents = [entry.document for entry in entries if isinstance(entry, TaskEntry)]
    found = [
        document
        for document in documents
        if isinstance(document, ApplyTask) and document.source.is_same_topic(address_of(task))
    ]
    if len(found) == 1:
        return found[0]
    names = ", ".join(document.name for document in found) or "no task"
    raise Fatal(
        "MR-5060", f"{task.name} is a capture task, and {names} {_applies(found)} its topic"
    )


def _applies(found: Sequence[ApplyTask]) -> str:
    return "apply" if len(found) > 1 else "applies"
