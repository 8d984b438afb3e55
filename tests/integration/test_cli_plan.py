"""`millrace plan`, `export` and the history commands on a real ZooKeeper."""

import io
import json
from pathlib import Path
from typing import Any

import pytest

from millrace.cli.exits import ExitCode
from millrace.errors import Retryable
from millrace.schemas.documents import TaskKind
from millrace.zk.tree.store import Store
from tests.fixtures.shell import APPLY, CAPTURE, SHOP, Shell
from tests.kit.control.control import ScriptedRunner
from tests.kit.waiting import eventually

WAREHOUSE = SHOP.replace("set: shop", "set: warehouse")
TO_WAREHOUSE = APPLY.replace("target: shop", "target: warehouse")


def _folder(shell: Shell, **texts: str) -> str:
    """A folder with only these files."""
    folder = shell.folder / "documents"
    for path in folder.rglob("*.yaml"):
        path.unlink()
    for name, text in texts.items():
        path = folder / f"{name}.yaml"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return str(folder)


def _plan(shell: Shell, *words: str, exit_code: int = 0) -> dict[str, Any]:
    found = json.loads(shell("plan", "--json", *words, exit_code=exit_code, stream="out"))
    assert isinstance(found, dict)
    return found


def _actions(plan: dict[str, Any]) -> dict[str, str]:
    return {f"{each['kind']} {each['name']}": each["action"] for each in plan["documents"]}


def _state(shell: Shell, name: str = "shop-capture") -> str:
    states = {task["task"]: task["state"] for task in json.loads(shell("task", "list", "--json"))}
    return str(states[name])


def test_plan_creates_all_documents_and_then_has_nothing_to_do(shell: Shell) -> None:
    """Files in any order, several documents in one; without --execute nothing is written."""
    folder = _folder(
        shell, all=f"{CAPTURE}---{SHOP}---{TO_WAREHOUSE}", **{"sub/warehouse": WAREHOUSE}
    )
    every = {"set shop", "set warehouse", "task shop-apply", "task shop-capture"}
    printed = shell("plan", "-f", folder, exit_code=1, stream="out")
    assert (
        "+ task shop-capture: create\n    · begins at the oldest binlog if the topic shop has no record"
        in printed
    )
    assert printed.endswith("4 to create\n")
    assert shell("set", "list").startswith("no sets")
    planned = _plan(shell, "-f", folder, exit_code=1)
    assert _actions(planned) == dict.fromkeys(every, "create")
    assert (planned["changes"], planned["executed"]) == (4, False)
    done = _plan(shell, "-f", folder, "--execute")
    assert (_actions(done), done["executed"]) == (dict.fromkeys(every, "create"), True)
    again = _plan(shell, "-f", folder, "--execute")
    assert (_actions(again), again["executed"]) == (dict.fromkeys(every, "keep"), False)
    assert shell("plan", "-f", folder) == "4 unchanged\nnothing to do\n"


def test_plan_names_fields_restarts_and_effects(shell: Shell) -> None:
    """For a running task and its set; a restart has each field that causes it, and it happens."""
    texts = {"shop": SHOP, "capture": CAPTURE}
    shell("plan", "-f", _folder(shell, **texts), "--execute")
    runner = ScriptedRunner()
    with shell.running(runner):
        eventually(lambda: _state(shell) == "running")
        texts["shop"] = SHOP.replace("port: 1", "port: 2") + "relay: always\n"
        texts["capture"] = CAPTURE + "start: 0-1-3\nexclude: [shop.t]\n"
        folder = _folder(shell, **texts)
        printed = shell("plan", "-f", folder, exit_code=1, stream="out")
        planned = _plan(shell, "-f", folder, exit_code=1)
        started = len(runner.starts)
        shell("plan", "-f", folder, "--execute")
        eventually(lambda: runner.epochs("shop-capture")[1:] and _state(shell) == "running")
        assert started == 1
    assert '    start: first → 0-1-3\n    exclude: [] → ["shop.t"]\n' in printed
    assert "`start` changed from first to 0-1-3 and has no effect" in printed
    assert "    relay.mode: with_tasks → always\n" in printed
    reasons = ["start", "exclude", "set shop: members"]
    assert f"! task shop-capture restarts because of {', '.join(reasons)}\n" in printed
    assert planned["restarts"] == [{"task": "shop-capture", "because": reasons}]
    (task,) = (each for each in planned["documents"] if each["kind"] == "task")
    assert task["fields"] == [
        {"field": "start", "before": "first", "after": "0-1-3"},
        {"field": "exclude", "before": [], "after": ["shop.t"]},
    ]


def test_plan_of_a_relay_mode_restarts_no_task(shell: Shell) -> None:
    """The running task continues, as the plan announces."""
    shell("plan", "-f", _folder(shell, all=f"{SHOP}---{CAPTURE}"), "--execute")
    runner = ScriptedRunner()
    with shell.running(runner):
        eventually(lambda: _state(shell) == "running")
        folder = _folder(shell, all=f"{SHOP}relay: always\n---{CAPTURE}")
        assert "no task restarts" in shell("plan", "-f", folder, exit_code=1, stream="out")
        assert _plan(shell, "-f", folder, "--execute")["restarts"] == []
        eventually(lambda: "relay:shop" in shell("status"))
        assert len(runner.epochs("shop-capture")) == 1


def test_changed_document_of_a_blocked_task_is_tried_again(shell: Shell) -> None:
    """As the plan says: a new document is a new revision."""
    from millrace.errors import Fatal

    def script(task: Any, _lease: Any, stop: Any) -> None:
        if not task.tables.exclude:
            raise Fatal("MR-1031", "purged")
        stop.wait()

    shell("plan", "-f", _folder(shell, all=f"{SHOP}---{CAPTURE}"), "--execute")
    with shell.running(ScriptedRunner(script)):
        eventually(lambda: _state(shell) == "blocked")
        folder = _folder(shell, all=f"{SHOP}---{CAPTURE}exclude: [shop.t]\n")
        printed = shell("plan", "-f", folder, exit_code=1, stream="out")
        assert "the task is blocked (MR-1031) and is tried again" in printed
        shell("plan", "-f", folder, "--execute")
        eventually(lambda: _state(shell) == "running")


def test_documents_outside_the_folder_are_deleted_only_by_prune(shell: Shell) -> None:
    """Without it they are mentioned. A set that a task of the folder uses is a problem."""
    shell("plan", "-f", _folder(shell, all=f"{SHOP}---{WAREHOUSE}---{CAPTURE}"), "--execute")
    folder = _folder(shell, shop=SHOP)
    assert "? task shop-capture: not in DIR; --prune deletes it\n" in shell("plan", "-f", folder)
    printed = shell("plan", "-f", folder, "--prune", exit_code=1, stream="out")
    assert "- task shop-capture: delete\n    · stops; the topic shop stays" in printed
    assert set(_actions(_plan(shell, "-f", folder, "--prune", "--execute")).values()) == {
        "delete",
        "keep",
    }
    assert [each["set"] for each in json.loads(shell("set", "list", "--json"))] == ["shop"]
    assert json.loads(shell("task", "list", "--json")) == []
    refused = shell("plan", "-f", _folder(shell, capture=CAPTURE), "--prune", exit_code=4)
    assert "MR-4140 set shop is used by task shop-capture" in refused


def test_all_problems_of_a_folder_are_reported_at_once(shell: Shell) -> None:
    """Files that can't be read, refused fields, duplicates, and rules between documents; nothing is written."""
    folder = _folder(
        shell,
        a_set=SHOP,
        b_twice=SHOP.replace("port: 1", "port: 2"),
        c_fields="set: crm\nmembers: []\nuser: m\npassword: canary\n",
        d_yaml="a: [",
        e_tasks=f"{CAPTURE}---{CAPTURE.replace('shop-capture', 'other')}",
        f_of_broken=CAPTURE.replace("task: shop-capture", "task: crm").replace(
            "set: shop", "set: crm"
        )
        + "topic: crm\n",
        g_no_set=TO_WAREHOUSE,
    )
    shell("set", "create", "-f", shell.file(SHOP))
    output = shell("plan", "-f", folder, "--execute", exit_code=4)
    assert output.startswith("MR-4141 ")
    assert "6 problems" in output
    for part in (
        "  MR-4141 b_twice.yaml contains set shop, which ",
        "password: found a value that is not shown",
        "    members: found 0 entries",
        "  MR-4102 d_yaml.yaml is not YAML at line 1",
        "  MR-4105 task other: task shop-capture writes the topic shop already",
        "MR-4105 task shop-capture: task other writes the topic shop already",
        "MR-4104 task shop-apply: there is no set 'warehouse'",
    ):
        assert part in output
    assert "canary" not in output
    assert json.loads(shell("task", "list", "--json")) == []
    assert "127.0.0.1:1" in shell("set", "list")
    problems = _plan(shell, "-f", folder, exit_code=4)["problems"]
    assert sorted({each["code"] for each in problems}) == [
        "MR-4101",
        "MR-4102",
        "MR-4104",
        "MR-4105",
        "MR-4141",
    ]


def test_folder_without_documents_deletes_nothing(shell: Shell) -> None:
    """A wrong path with --prune would delete everything."""
    shell("set", "create", "-f", shell.file(SHOP))
    folder = _folder(shell, hidden="")
    for place in (folder, str(shell.folder / "nowhere")):
        refused = shell("plan", "-f", place, "--prune", "--execute", exit_code=4)
        assert refused.startswith("MR-4141 ")
    assert "shop" in shell("set", "list")


def test_topic_of_an_apply_task_with_progress_is_a_problem(shell: Shell) -> None:
    """MR-5022, as `task create --replace` says; another target is a replay."""
    shell("plan", "-f", _folder(shell, all=f"{SHOP}---{WAREHOUSE}---{APPLY}"), "--execute")
    with shell.running(ScriptedRunner(), kind=TaskKind.APPLY):
        eventually(lambda: _state(shell, "shop-apply") == "running")
        moved = APPLY.replace("topic: shop", "topic: other")
        folder = _folder(shell, all=f"{SHOP}---{WAREHOUSE}---{moved}")
        assert "MR-5022 task shop-apply: shop-apply has applied the topic shop" in shell(
            "plan", "-f", folder, exit_code=4
        )
        folder = _folder(shell, all=f"{SHOP}---{WAREHOUSE}---{TO_WAREHOUSE}lanes: 2\n")
        printed = shell("plan", "-f", folder, exit_code=1, stream="out")
    assert "`target`: the task resumes from its progress on warehouse; without progress" in printed
    assert "`lanes`: holds for the changes that are not applied yet" in printed


def test_start_of_a_planned_task_is_compared_with_its_source(shell: Shell) -> None:
    """The source comes from the plan itself; here it does not answer, which is a note."""
    text = f"{SHOP}---{WAREHOUSE}---{CAPTURE}---{TO_WAREHOUSE}start: 0-1-5\n"
    printed = shell("plan", "-f", _folder(shell, all=text), exit_code=1, stream="out")
    assert "`start` was not compared with the source: MR-4204 set shop: no member" in printed


def test_plan_is_refused_if_documents_change_meanwhile(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The exit code asks for another try, which plans again."""
    folder, write = _folder(shell, shop=SHOP), Store.write

    def late(self: Store, *arguments: Any) -> None:
        monkeypatch.setattr(Store, "write", write)
        with shell.ensemble.session() as session:
            Store(session, shell.ensemble.tree).create_set(crm)
        self.write(*arguments)

    from tests.kit.control.control import a_set

    crm = a_set("crm")
    monkeypatch.setattr(Store, "write", late)
    refused = shell(
        "plan", "-f", folder, "--execute", "--json", exit_code=ExitCode.RETRY, stream="err"
    )
    assert json.loads(refused)["class"] == Retryable.__name__.lower()
    assert json.loads(refused)["code"] == "MR-4007"
    assert [each["set"] for each in json.loads(shell("set", "list", "--json"))] == ["crm"]
    shell("plan", "-f", folder, "--execute")


def test_exported_documents_are_equal_to_those_of_the_cluster(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a folder and as a stream, with all fields; after a new cluster was made from them, too."""
    rich = SHOP + "relay: {mode: always, purge: {expires_h: 72}}\nheartbeat: {database: ops}\n"
    texts = (
        rich,
        WAREHOUSE,
        CAPTURE + "include: [shop.*, 'é.?']\n",
        TO_WAREHOUSE + "start: 0-1-5\n",
    )
    shell("plan", "-f", _folder(shell, all="---".join(texts)), "--execute")
    folder = shell.folder / "new" / "export"
    assert shell("export", str(folder)) == f"4 documents written to {folder}\n"
    files = sorted(str(path.relative_to(folder)) for path in folder.rglob("*.yaml"))
    assert files == [
        "sets/shop.yaml",
        "sets/warehouse.yaml",
        "tasks/shop-apply.yaml",
        "tasks/shop-capture.yaml",
    ]
    assert "canary" not in shell("export")
    monkeypatch.setattr("sys.stdin", io.StringIO(shell("export", "-")))
    assert set(_actions(_plan(shell, "-f", "-", "--prune")).values()) == {"keep"}
    assert _plan(shell, "-f", str(folder), "--prune")["changes"] == 0
    for key in ("task/shop-apply", "task/shop-capture", "set/shop", "set/warehouse"):
        shell(*key.split("/")[:1], "delete", key.split("/")[1])
    assert _plan(shell, "-f", str(folder), "--execute")["changes"] == 4
    assert _plan(shell, "-f", str(folder), "--prune")["changes"] == 0


def test_export_never_mixes_with_existing_files(shell: Shell) -> None:
    """An old file would be a document that the cluster does not have. What fails leaves nothing."""
    shell("set", "create", "-f", shell.file(SHOP))
    folder = Path(_folder(shell, other=WAREHOUSE))
    assert shell("export", str(folder), exit_code=4).startswith("MR-4143 ")
    assert [path.name for path in folder.iterdir()] == ["other.yaml"]
    assert shell("export", str(folder / "other.yaml" / "x"), exit_code=4).startswith("MR-4143 ")
    empty = shell.folder / "empty"
    empty.mkdir()
    shell("export", str(empty))
    assert (empty / "sets" / "shop.yaml").exists()
    assert not [path for path in shell.folder.iterdir() if path.name.startswith(".")]


def test_former_document_is_listed_compared_and_written_again(shell: Shell) -> None:
    """Through the checks of a creation; the rollback is a new revision, also after a deletion."""
    shell("set", "create", "-f", shell.file(SHOP))
    shell("task", "create", "-f", shell.file(CAPTURE))
    shell("task", "create", "-f", shell.file(CAPTURE + "exclude: [shop.t]\n"), "--replace")
    assert shell("task", "diff", "shop-capture") == (
        'task shop-capture: revision 1 → 2\n  exclude: [] → ["shop.t"]\n'
    )
    assert shell("task", "rollback", "shop-capture", "1") == "task shop-capture replaced\n"
    assert shell("task", "rollback", "shop-capture", "1") == "task shop-capture unchanged\n"
    assert "no difference" in shell("task", "diff", "shop-capture", "1", "3")
    shell("task", "delete", "shop-capture")
    assert shell("task", "rollback", "shop-capture", "2") == "task shop-capture created\n"
    found = json.loads(shell("task", "history", "shop-capture", "--json"))
    assert [(each["revision"], each["command"]) for each in found] == [
        (1, "task create"),
        (2, "task create"),
        (3, "task rollback 1"),
        (4, "task delete"),
        (5, "task rollback 2"),
    ]
    assert {each["by"] for each in found} == {found[0]["by"]}
    assert "@" in found[0]["by"]
    printed = shell("task", "history", "shop-capture")
    assert [line.split()[-1] for line in printed.splitlines()[1:]] == [
        "created",
        "exclude",
        "exclude",
        "deleted",
        "created",
    ]
    changed = json.loads(shell("task", "diff", "shop-capture", "1", "--json"))
    assert changed["fields"] == [{"field": "exclude", "before": [], "after": ["shop.t"]}]
    shell("task", "delete", "shop-capture")
    shell("task", "create", "-f", shell.file(CAPTURE.replace("shop-capture", "other")))
    assert shell("task", "rollback", "shop-capture", "2", exit_code=4).startswith("MR-4105 ")


def test_set_has_a_history_and_is_deleted(shell: Shell) -> None:
    """`relay start` writes the document, too. A set in use stays."""
    shell("set", "create", "-f", shell.file(SHOP))
    shell("relay", "start", "shop")
    assert "  relay.mode: with_tasks → always\n" in shell("set", "diff", "shop")
    assert shell("set", "rollback", "shop", "1") == "set shop replaced\n"
    commands = [each["command"] for each in json.loads(shell("set", "history", "shop", "--json"))]
    assert commands == ["set create", "relay start", "set rollback 1"]
    shell("task", "create", "-f", shell.file(CAPTURE))
    assert shell("set", "delete", "shop", exit_code=4).startswith("MR-4140 ")
    shell("task", "delete", "shop-capture")
    assert shell("set", "delete", "shop") == "set shop deleted\n"
    assert shell("set", "list").startswith("no sets")
    assert shell("set", "rollback", "shop", "1") == "set shop created\n"


def test_unknown_revision_is_refused(shell: Shell) -> None:
    """A number that was never used, a deletion, and a document without a history."""
    shell("set", "create", "-f", shell.file(SHOP))
    for words in (("rollback", "shop", "7"), ("diff", "shop", "7"), ("diff", "shop", "1", "7")):
        assert shell("set", *words, exit_code=4).startswith("MR-4142 set shop has no revision 7")
    only = shell("set", "diff", "shop", exit_code=4)
    assert only.startswith("MR-4142 set shop has only revision 1, so there is nothing to compare")
    shell("set", "delete", "shop")
    assert shell("set", "rollback", "shop", "2", exit_code=4).startswith("MR-4142 revision 2 of")
    assert shell("set", "history", "nope", exit_code=4).startswith("MR-4104 ")
