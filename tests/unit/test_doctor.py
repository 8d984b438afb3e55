"""The order of the doctor's troubles, and the secrets that its bundle never contains."""

import json
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest

from millrace.checks.requirement import Area, Requirement, Subject
from millrace.cli.doctor.bundle import (
    LOG_BYTES_MAX,
    Bundle,
    check_new,
    environment,
    redacted,
    unreadable,
    write_bundle,
)
from millrace.cli.doctor.doctor import lines_of
from millrace.cli.doctor.troubles import LOSS_S, open_doors, troubles_of
from millrace.errors import Fatal
from millrace.schemas.documents import TaskKind
from millrace.schemas.stages import Backlog
from millrace.schemas.status import TaskReport, TaskState
from millrace.zk.client.access import Access
from millrace.zk.view import Cluster, TaskView
from tests.kit.control.reports import DELIVERED, FULL_CAPTURE, FULL_PUBLISH

CANARY = "canary-5f2d"
QUIET = replace(FULL_CAPTURE, warnings=())
CLUSTER = Cluster(
    tasks={},
    workers={"w1": TaskKind.CAPTURE, "a1": TaskKind.APPLY},
    assigned={},
    owners={},
    saved_reports={},
    leader="s1",
)
KAFKA, ZOOKEEPER = Subject(Area.KAFKA, "topic shop"), Subject(Area.ZOOKEEPER, "ensemble")


def _view(name: str, report: TaskReport, kind: str = "capture") -> TaskView:
    return TaskView(name=name, kind=kind, route="", report=report, assigned="w1", age_s=1)


def _ranks(
    report: TaskReport, *found: Requirement, cluster: Cluster | None = CLUSTER
) -> list[tuple[int, str]]:
    troubles = troubles_of(cluster, [_view("t", report)], found)
    return [(trouble.rank, trouble.code) for trouble in troubles]


def test_what_loses_changes_comes_first() -> None:
    """Then what stops everything, then tasks that need an operator, at the end the warnings."""
    assert QUIET.relayed is not None
    late = replace(QUIET.relayed, caught_up=False, time_to_loss_s=LOSS_S - 1)
    blocked = replace(
        FULL_CAPTURE, state=TaskState.BLOCKED, code="MR-1033", why="lost", relayed=late
    )
    found = (
        KAFKA.warn("MR-3021", "replicas", found="1"),
        KAFKA.fail("MR-3020", "settings", found="other ones"),
        ZOOKEEPER.fail("MR-4001", "servers", found="0 of 3 servers answer"),
    )
    without_scheduler = replace(CLUSTER, leader="")
    assert _ranks(blocked, *found, cluster=without_scheduler) == [
        (0, ""),
        (1, ""),
        (1, "MR-4001"),
        (2, "MR-1033"),
        (4, "MR-3020"),
        (6, ""),
        (6, "MR-3021"),
    ]


@pytest.mark.parametrize(
    ("state", "rank"),
    [(TaskState.BLOCKED, 2), (TaskState.STALLED, 3), (TaskState.DEGRADED, 5)],
)
def test_task_is_ranked_by_its_state(state: TaskState, rank: int) -> None:
    """A task that waits for an operator comes before one that retries."""
    assert _ranks(replace(QUIET, state=state, code="MR-1001")) == [(rank, "MR-1001")]


def test_healthy_cluster_has_no_trouble() -> None:
    """A caught-up relay loses nothing, however short binlogs are kept; a paused task is no trouble."""
    assert QUIET.relayed is not None
    short = replace(QUIET, relayed=replace(QUIET.relayed, time_to_loss_s=60.0))
    for report in (QUIET, short, replace(QUIET, state=TaskState.PAUSED)):
        assert _ranks(report, KAFKA.ok("settings", "as wanted")) == []
    (last,) = list(lines_of("default", [], [], []))[1:]
    assert last == "nothing to fix"


@pytest.mark.parametrize(
    ("state", "rows", "ranks"),
    [
        (TaskState.RUNNING, 5, [0]),
        (TaskState.RUNNING, 0, []),
        (TaskState.PAUSED, 0, [0]),
        (TaskState.DEGRADED, 5, [0, 5]),
    ],
)
def test_late_reader_beside_a_short_retention_comes_first(
    state: TaskState, rows: int, ranks: list[int]
) -> None:
    """A task that has read all loses nothing, however short the topic keeps its records."""
    delivered = replace(DELIVERED, backlog=Backlog(rows=rows))
    view = _view("p", replace(FULL_PUBLISH, state=state, delivered=delivered), "publish")
    found = troubles_of(CLUSTER, [replace(view, time_to_loss_s=LOSS_S - 1)], [])
    assert [trouble.rank for trouble in found] == ranks
    assert troubles_of(CLUSTER, [replace(view, time_to_loss_s=LOSS_S)], []) == found[1:]


def test_failed_requirement_that_a_task_reports_is_listed_once() -> None:
    """By the task, whose text is more exact."""
    blocked = replace(QUIET, state=TaskState.BLOCKED, code="MR-1031")
    again = Subject(Area.SOURCE, "set shop").fail("MR-1031", "position", found="purged")
    assert _ranks(blocked, again) == [(2, "MR-1031")]


def test_warning_that_a_task_reports_is_listed_once() -> None:
    """By the check, which has the fix apart. A warning of the task alone keeps its code."""
    warned = replace(QUIET, warnings=("MR-3021 the topic shop: one replica. Create it again",))
    running = replace(QUIET, code="MR-5018", why="triggers on the target")
    found = [KAFKA.warn("MR-3021", "durability", found="1"), KAFKA.warn("MR-5018", "t", found="1")]
    assert _ranks(warned, *found[:1]) == _ranks(warned) == [(6, "MR-3021")]
    assert _ranks(running, *found[1:]) == _ranks(running) == [(6, "MR-5018")]


def test_missing_worker_of_a_kind_is_named() -> None:
    """Only if a task needs one."""
    cluster = replace(CLUSTER, workers={"w1": TaskKind.CAPTURE})
    views = [_view("c", QUIET), _view("a", TaskReport(TaskState.PENDING), "apply")]
    (trouble,) = troubles_of(cluster, views, [])
    assert (trouble.rank, trouble.what) == (1, "no apply worker runs, and tasks need one")
    assert troubles_of(cluster, views[:1], []) == []
    publishing = [_view("p", TaskReport(TaskState.PENDING), "publish")]
    assert troubles_of(cluster, publishing, []) == [trouble]
    assert troubles_of(CLUSTER, publishing, []) == []


def test_open_ensemble_is_a_warning_with_its_fix() -> None:
    """Everything works meanwhile, for strangers too."""
    (weakness,) = open_doors(Access().weaknesses())
    assert weakness.is_warning
    assert "every client of ZooKeeper can change the tasks" in weakness.what
    assert "millrace cluster secure" in weakness.fix


def test_lines_fit_a_terminal() -> None:
    """Each trouble has a number; its fix is below it."""
    blocked = replace(QUIET, state=TaskState.BLOCKED, code="MR-1031", why="w " * 90, fix="f " * 90)
    views = [_view("t", blocked)]
    lines = list(lines_of("default", views, [], troubles_of(CLUSTER, views, [])))
    assert max(map(len, lines)) <= 80
    assert lines[1].startswith("  1 fix  MR-1031 task t: w w")


@pytest.mark.parametrize(
    "text",
    [
        f"http://ann:{CANARY}@registry:8081/x",
        f"password={CANARY}",
        f'{{"password": "{CANARY}", "user": "ann"}}',
        f"MILLRACE_TOKEN: '{CANARY}'",
        f"sasl.jaas.config={CANARY}",
        f"Secret = {CANARY};",
        f"MYSQL_PWD={CANARY} mysql",
        f"mysql -h db1 -p{CANARY} shop",
        f"mysql -h db1 -p'{CANARY}'",
        f"Authorization: Bearer {CANARY}",
        f"authorization: Basic {CANARY}",
        f"CREATE USER m IDENTIFIED BY '{CANARY}'",
        f"ALTER USER m IDENTIFIED WITH caching_sha2_password BY '{CANARY}'",
        f"SET PASSWORD = PASSWORD('{CANARY}')",
        f"AWS_SECRET_ACCESS_KEY={CANARY}",
        f"-----BEGIN PRIVATE KEY-----\n{CANARY}\n-----END PRIVATE KEY-----",
    ],
)
def test_secret_is_redacted_wherever_it_is(text: str) -> None:
    """The rest of the text stays."""
    assert CANARY not in redacted(text)
    assert "[redacted]" in redacted(text)
    assert redacted("password: file:/run/secrets/x") == "password: file:/run/secrets/x"


def test_environment_has_millraces_variables_without_secrets() -> None:
    """A reference to a secret is shown, a secret is not; foreign variables are left out."""
    found = environment(
        {
            "MILLRACE_ZOOKEEPER": "zk1:2181",
            "MILLRACE_ZOOKEEPER_PASSWORD": "file:/run/secrets/zk",
            "MILLRACE_PASSWORD": CANARY,
            "HOME": "/home/ann",
        }
    )
    assert found == {
        "MILLRACE_PASSWORD": "[redacted]",
        "MILLRACE_ZOOKEEPER": "zk1:2181",
        "MILLRACE_ZOOKEEPER_PASSWORD": "file:/run/secrets/zk",
    }


def test_bundle_has_all_parts_and_no_secret(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only its owner can read it, of a long log it has the end, and it replaces no file."""
    monkeypatch.setenv("MILLRACE_CANARY_PASSWORD", CANARY)
    log, path = tmp_path / "worker.log", tmp_path / "bundle.zip"
    log.write_text("first\n" + "x" * LOG_BYTES_MAX + f"\nlast password={CANARY}\n")
    bundle = Bundle(
        summary="nothing to fix",
        status={"why": f"http://u:{CANARY}@h"},
        check={},
        documents={"set-shop": "password: file:/run/secrets/x\n"},
        logs=[log, tmp_path / "none.log"],
    )
    write_bundle(path, bundle)
    assert path.stat().st_mode & 0o777 == 0o600
    with zipfile.ZipFile(path) as archive:
        parts = {name: archive.read(name).decode() for name in archive.namelist()}
    assert not [name for name, text in parts.items() if CANARY in text]
    machine = json.loads(parts["machine.json"])
    assert machine["packages"]["kazoo"][0].isdigit()
    assert "file:/run/secrets/x" in parts["documents/set-shop.yaml"]
    (tail,) = (text for name, text in parts.items() if name.endswith("worker.log"))
    assert "first" not in tail
    assert "last" in tail
    assert "can't be read" in next(text for name, text in parts.items() if "none.log" in name)
    with pytest.raises(Fatal) as caught:
        write_bundle(path, bundle)
    assert caught.value.code == "MR-4208"


def test_bundle_that_can_not_be_written_is_refused_first(tmp_path: Path) -> None:
    """They may take a minute. A new file in a folder that exists is no problem."""
    (tmp_path / "old.zip").touch()
    check_new(tmp_path / "new.zip")
    for place, reason in (("old.zip", "it exists"), ("none/new.zip", "is no folder")):
        with pytest.raises(Fatal, match=reason) as caught:
            check_new(tmp_path / place)
        assert caught.value.code == "MR-4208"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["old.zip"]


def test_log_that_can_not_be_read_is_named(tmp_path: Path) -> None:
    """Otherwise its absence shows only in the bundle."""
    present, absent = tmp_path / "worker.log", tmp_path / "apply.log"
    present.touch()
    assert list(unreadable([present, absent])) == [
        f"{absent} can't be read: No such file or directory"
    ]
    assert list(unreadable([tmp_path])) == [f"{tmp_path} can't be read: Is a directory"]
