"""The target of an apply task, for commands that show or decide what waits there."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from millrace.cli.control import Control
from millrace.errors import Fatal, naming
from millrace.schemas.documents import ApplyTask

if TYPE_CHECKING:
    from millrace.drivers.mysql.connection import Endpoint, MySqlSession


def target_endpoint(now: Control, task: str, *, code: str, for_writing: bool = True) -> "Endpoint":
    """The primary of the target set; Fatal ``code`` for a task that is no apply task."""
    from millrace.drivers.mysql.primary import primary_member

    document = now.store.task_entry(task).document
    if not isinstance(document, ApplyTask):
        raise Fatal(code, f"{task} is not an apply task", task=task)
    target = now.store.set_entry(document.target).document
    return primary_member(target, for_writing=for_writing)


@contextmanager
def target_session(endpoint: "Endpoint", task: str, *, code: str) -> Iterator["MySqlSession"]:
    """A session there. Errors as ``known_target``."""
    from millrace.drivers.mysql.connection import connect

    with known_target(task, code=code), connect(endpoint) as session:
        yield session


@contextmanager
def known_target(task: str, *, code: str) -> Iterator[None]:
    """Fatal ``code`` if the target has no tables of Millrace, or those of an earlier version."""
    try:
        with naming(task=task):
            yield
    except Fatal as exc:
        if exc.code not in ("MR-5012", "MR-5013") or "table" in exc.context:
            raise
        what = f"{task} has not run on this target with this version"
        raise Fatal(code, what, task=task) from exc
