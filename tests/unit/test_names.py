"""Invalid names of sets, tasks and processes reach no node and start nothing."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, cast

import pytest

from millrace import cli
from millrace.errors import Fatal
from millrace.zk.ensemble import Ensemble
from millrace.zk.lease import membership
from millrace.zk.tree.paths import Tree
from millrace.zk.tree.store import Store

NO_NAMES = (
    ".",
    "..",
    "../x",
    "./shop",
    "/",
    "shop/",
    "a/b",
    ".a",
    " a",
    "a\n",
    "ä",
    "a\udcff",
    "a" * 64,
)
COMMANDS = (
    "set show",
    "task show",
    "task pause",
    "task resume",
    "task delete",
    "task wait",
    "compare",
    "compare --now",
    "ddl list",
    "conflict list",
    "acl print",
)


class Unasked:
    """A session that fails the test if it is used."""

    def __getattr__(self, call: str) -> None:
        raise AssertionError(f"the ensemble is asked: {call}")


def test_invalid_name_reaches_no_node() -> None:
    """'' would be the parent folder, 'a/' the node of a; for '..' the driver raises an unexpected error."""
    store = Store(cast(Any, Unasked()), Tree())
    for name in ("", *NO_NAMES):
        for call in (store.set_entry, store.task_entry, store.resume, store.delete):
            with pytest.raises(Fatal, match=r"there is no (set|task)") as caught:
                call(name)
            assert caught.value.code == "MR-4104"


@pytest.mark.parametrize("command", COMMANDS)
def test_invalid_set_or_task_name_is_refused_by_each_command(
    command: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each command raises MR-4104 before any request."""

    @contextmanager
    def session(_: Ensemble) -> Iterator[Unasked]:
        yield Unasked()

    monkeypatch.setenv("MILLRACE_ZOOKEEPER", "127.0.0.1:1")
    monkeypatch.setattr(Ensemble, "session", session)
    for name in ("", *NO_NAMES):
        assert cli.run([*command.split(), name]) == 4
        assert capsys.readouterr().err.startswith(f"MR-4104 there is no {_kind(command)} {name!r} ")


def _kind(command: str) -> str:
    return "set" if command.startswith("set") else "task"


@pytest.mark.parametrize("command", ["worker --relay-dir relay", "scheduler", "apply"])
def test_process_with_an_invalid_name_is_not_started(
    command: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """MR-4101 with its fix comes before a JVM or a session starts."""
    started: list[object] = []
    monkeypatch.setenv("MILLRACE_ZOOKEEPER", "127.0.0.1:1")
    monkeypatch.setattr(
        "millrace.consumer.spark.session.SparkDriver.__init__",
        lambda *_, **__: started.append("a JVM"),
    )
    monkeypatch.setattr("millrace.consumer.spark.session.SparkDriver.stop", lambda _: None)
    monkeypatch.setattr("signal.signal", lambda *_: None)
    monkeypatch.setattr(Ensemble, "open", lambda *_, **__: started.append("a session"))
    for name in NO_NAMES:
        assert cli.run([*command.split(), f"--name={name}"]) == 4
        printed = capsys.readouterr().err
        assert printed.startswith(
            f"MR-4101 the name of this process is {name[:60]!r}, wanted a name of 1 to 63"
        )
        assert "--name" in printed
    assert started == []


def test_process_name_must_be_valid() -> None:
    """A worker named 'a/b' would register in a place that no scheduler reads."""
    for name in NO_NAMES:
        with pytest.raises(Fatal, match="the name of this process is"):
            membership.process_name(name)


def test_process_name_defaults_to_its_host() -> None:
    """The host's name must be valid too."""
    host = membership.default_name()
    assert membership.process_name("w-1.of_2") == "w-1.of_2"
    assert membership.process_name("") == membership.process_name(host) == host


@pytest.mark.parametrize("name", ["", *NO_NAMES])
def test_cluster_name_must_be_valid(name: str) -> None:
    """MR-4101 is raised, because the name is also a node's."""
    assert Tree("c" * 63).root == "/millrace/" + "c" * 63
    with pytest.raises(Fatal) as caught:
        Tree(name)
    assert caught.value.code == "MR-4101"
    assert "MILLRACE_CLUSTER" in caught.value.fix
