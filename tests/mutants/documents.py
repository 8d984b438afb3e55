"""Guards of documents, removed on a real ZooKeeper."""

from collections.abc import Callable

from millrace.zk.client.session import Change, Put, Session
from tests.mutants.mutant import Mutant, Patch


def _without(patch: Patch, is_left_out: Callable[[Change], bool]) -> None:
    commit = Session.commit

    def committed(self: Session, *changes: Change) -> None:
        commit(self, *(change for change in changes if not is_left_out(change)))

    patch.setattr(Session, "commit", committed)


def guard_not_raised(patch: Patch) -> None:
    """Two commands write documents that exclude each other."""
    _without(patch, lambda change: isinstance(change, Put) and change.path.endswith("/tasks"))


def history_not_kept(patch: Patch) -> None:
    """A document is replaced, and the former one is lost."""
    _without(patch, lambda change: "/history/" in change.path)


MUTANTS = [
    Mutant(
        "documents are written under one version",
        guard_not_raised,
        "tests/integration/test_zk_documents.py",
        {
            "test_set_is_not_deleted_while_its_task_is_created": "DID NOT RAISE",
            "test_edits_of_an_outdated_state_are_refused_as_a_whole[another document]": "DID NOT RAISE",
        },
    ),
    Mutant(
        "a former document is kept",
        history_not_kept,
        "tests/integration/test_zk_documents.py",
        {"test_every_write_of_a_document_is_in_its_history": r"\[\] == \[1, 2, 3, 4\]"},
    ),
]
