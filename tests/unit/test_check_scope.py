"""Which documents `millrace check` and `millrace grants print` take: from files, and from ZooKeeper."""

from dataclasses import replace
from pathlib import Path

import pytest

from millrace.cli.check.scope import Known, databases_of, parse_files, scope_of
from millrace.cli.grants import statements
from millrace.drivers.mysql.grants import Role, each, needed_grants, parse_grants
from millrace.errors import Fatal
from millrace.schemas.documents import (
    Account,
    ApplyRules,
    ApplyTask,
    Brokers,
    CaptureTask,
    CompareRules,
    HeartbeatRules,
    Member,
    SecretReference,
    SetDocument,
    Start,
    TableFilter,
    TopicAddress,
)
from millrace.schemas.gtid import Flavour

REFERENCE = SecretReference.parse("env:MILLRACE_TEST_PASSWORD")
assert REFERENCE is not None
SHOP = SetDocument(
    name="shop",
    members=(Member("db1", 3306),),
    account=Account("m", REFERENCE),
    heartbeat=HeartbeatRules(database="ops"),
)
COPY = replace(SHOP, name="copy", heartbeat=HeartbeatRules())
ADDRESS = TopicAddress(topic="shop", brokers=Brokers("k1:9092"))
CAPTURE = CaptureTask(name="capture", set_name="shop", output=ADDRESS, start=Start("0-1-1"))
APPLY = ApplyTask(name="apply", source=ADDRESS, target="copy")
STORED = Known(
    {"shop": SHOP, "copy": COPY},
    {"capture": CAPTURE, "apply": APPLY},
    {"shop": {"capture": "0-1-500"}},
)


def test_without_names_or_files_everything_is_checked() -> None:
    """All sets, all tasks; a set is a source or a target by its tasks."""
    scope = scope_of(STORED, Known(), [])
    assert [task.name for task in scope.tasks] == ["capture", "apply"]
    assert list(scope.sets) == ["shop", "copy"]
    assert scope.is_source("shop")
    assert not scope.applies("shop")
    assert not scope.is_source("copy")
    assert scope.applies("copy") == [APPLY]


def test_named_task_brings_its_set_and_no_other_task() -> None:
    """A name that is neither set nor task is refused."""
    scope = scope_of(STORED, Known(), ["apply"])
    assert (list(scope.tasks), list(scope.sets)) == ([APPLY], ["copy"])
    assert list(scope_of(STORED, Known(), ["shop"]).tasks) == []
    with pytest.raises(Fatal) as caught:
        scope_of(STORED, Known(), ["nothing"])
    assert caught.value.code == "MR-4104"


def test_file_replaces_the_stored_document_and_its_progress() -> None:
    """Progress belongs to a topic and a set: a task that gets another one begins at its start."""
    same = replace(CAPTURE, tables=TableFilter(("shop.*",)))
    scope = scope_of(STORED, Known({}, {"capture": same}), [])
    assert list(scope.tasks) == [same]
    assert scope.position_of(same) == "0-1-500"
    other = replace(CAPTURE, output=replace(ADDRESS, topic="other"))
    assert scope_of(STORED, Known({}, {"capture": other}), []).position_of(other) == "0-1-1"
    new = replace(CAPTURE, name="new")
    assert scope_of(STORED, Known({}, {"new": new}), []).position_of(new) == "0-1-1"


def test_account_of_two_roles_may_have_the_grants_of_both() -> None:
    """A set that is read and written has one account."""
    back = ApplyTask(name="back", source=replace(ADDRESS, topic="back"), target="shop")
    both = scope_of(STORED, Known({}, {"back": back}), ["shop"])
    as_target = each(both.grants_besides("shop", Role.TARGET, Flavour.MYSQL))
    assert "REPLICATION SLAVE on *.*" in as_target
    assert "CREATE on ops.*" in as_target
    assert "PROCESS on *.*" in each(both.grants_besides("shop", Role.SOURCE, Flavour.MYSQL))
    heartbeat = scope_of(STORED, Known(), []).grants_besides("shop", Role.SOURCE, Flavour.MYSQL)
    assert {grant.scope for grant in heartbeat} == {"ops"}


def test_loaded_source_keeps_what_the_load_needs() -> None:
    """The check revokes superfluous rights of an account, not those of its other roles."""
    loads = replace(APPLY, start=Start(is_load=True))
    scope = scope_of(replace(STORED, tasks={"capture": CAPTURE, "apply": loads}), Known(), [])
    kept = scope.grants_besides("shop", Role.SOURCE, Flavour.MYSQL)
    held = parse_grants(["GRANT ALL PRIVILEGES ON *.* TO `m`@`%`"])
    needed = (*needed_grants(Role.SOURCE, Flavour.MYSQL), *kept)
    assert "GRANT SELECT, LOCK TABLES ON `%`.* TO" in held.revoking(held.excess(needed), needed)


def test_databases_of_tasks_become_grant_patterns() -> None:
    """None if a task includes all databases: an operator must name them."""
    some = replace(CAPTURE, tables=TableFilter(("a_b.*", "c*.t", "a_b.x")))
    assert databases_of([some]) == (r"a\_b", "c%")
    assert databases_of([some, CAPTURE]) == ()


def test_kind_of_a_document_follows_from_its_keys(tmp_path: Path) -> None:
    """A task names itself with ``task``; all else must be a set."""
    task, other = tmp_path / "task.yaml", tmp_path / "set.yaml"
    task.write_text(
        "task: t\nkind: apply\ntopic: shop\ntarget: copy\nkafka: {bootstrap: 'k1:9092'}\n"
    )
    other.write_text("set: copy\nmembers: [{host: db1, port: 3306}]\nuser: m\npassword: env:X\n")
    found = parse_files([str(task), str(other)])
    assert (list(found.tasks), list(found.sets)) == (["t"], ["copy"])


def test_every_bad_document_of_files_is_reported(tmp_path: Path) -> None:
    """As `millrace plan` does: with its place and code, and twice if it is in two files."""
    good, wrong, broken = (tmp_path / f"{name}.yaml" for name in ("good", "wrong", "broken"))
    good.write_text("set: copy\nmembers: [{host: db1, port: 3306}]\nuser: m\npassword: env:X\n")
    wrong.write_text("tasks: 1\n")
    broken.write_text("set: [\n")
    with pytest.raises(Fatal) as caught:
        parse_files([str(tmp_path), str(good)])
    assert caught.value.code == "MR-4141"
    head, *lines = caught.value.message.splitlines()
    assert head == f"{tmp_path}, {good}: 3 problems"
    named = [line.split()[:2] for line in lines if line.startswith("  MR-")]
    assert [code for code, _ in named] == ["MR-4102", "MR-4101", "MR-4141"]
    (tmp_path / "empty").mkdir()
    with pytest.raises(Fatal, match="contains no document"):
        parse_files([str(good), str(tmp_path / "empty")])


def test_grants_are_printed_for_the_rows_that_a_task_reads() -> None:
    """A load and a comparison read the source's rows; other tasks do not."""
    for rules, roles in (
        (ApplyRules(), []),
        (ApplyRules(compare=CompareRules(every_h=24)), [Role.COMPARE]),
    ):
        known = replace(STORED, tasks={"capture": CAPTURE, "apply": replace(APPLY, rules=rules)})
        scope = scope_of(known, Known(), [])
        assert scope.roles("shop") == (Role.SOURCE, Role.HEARTBEAT, *roles)
        assert scope.roles("copy") == (Role.TARGET,)
    loads = replace(APPLY, start=Start(is_load=True))
    scope = scope_of(replace(STORED, tasks={"capture": CAPTURE, "apply": loads}), Known(), [])
    assert Role.LOAD in scope.roles("shop")


def test_grants_of_a_set_without_tasks_name_the_other_role() -> None:
    """Its tasks show what it is for; without them, the grants are those of a source."""
    alone = scope_of(replace(STORED, tasks={}), Known(), [])
    (remark, *lines) = statements(alone, COPY, alone.roles("copy"), Flavour.MYSQL, [])
    assert "--role target" in remark
    assert lines[0].startswith("-- set ")
    for scope, roles in ((alone, [Role.TARGET]), (scope_of(STORED, Known(), []), [Role.SOURCE])):
        assert "--role" not in "".join(statements(scope, COPY, roles, Flavour.MYSQL, []))
