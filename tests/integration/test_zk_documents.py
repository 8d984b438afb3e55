"""Documents in a real ZooKeeper: several in one transaction, the rules between them, and their history."""

from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from millrace.errors import Fatal, MillraceError, Retryable
from millrace.schemas.documents import CaptureTask, Directives, Member, TableFilter
from millrace.zk.client.session import Session
from millrace.zk.ensemble import Ensemble
from millrace.zk.tree import history, store
from millrace.zk.tree.documents import DocumentKey, Edit, plain_document, set_key, task_key
from millrace.zk.tree.entries import Desired, task_content
from millrace.zk.tree.history import Author
from millrace.zk.tree.store import Outcome, Store
from tests.kit.control.control import a_capture, a_set, an_apply

ANN = Author("ann@host", "task create")


@pytest.fixture
def session(ensemble: Ensemble) -> Iterator[Session]:
    """A session with the tree created."""
    with ensemble.session() as session:
        yield session


@pytest.fixture
def documents(session: Session, ensemble: Ensemble) -> Store:
    """A store with an author, and the sets shop and warehouse."""
    found = Store(session, ensemble.tree, author=ANN)
    for name in ("shop", "warehouse"):
        found.create_set(a_set(name))
    return found


def _between_check_and_write(
    monkeypatch: pytest.MonkeyPatch, session: Session, action: Callable[[], object]
) -> None:
    """Run ``action`` before the session's first commit."""
    commit, left = session.commit, [action]

    def committed(*changes: object) -> object:
        while left:
            left.pop()()
        return commit(*changes)  # type: ignore[arg-type]

    monkeypatch.setattr(session, "commit", committed)


def _code(action: Callable[[], object]) -> str:
    with pytest.raises(MillraceError) as caught:
        action()
    return caught.value.code


def test_every_write_of_a_document_is_in_its_history(documents: Store) -> None:
    """Also its deletion and its second creation; a write that changes nothing, a pause and a resume are not."""
    first, second = a_capture(topic="a"), a_capture(topic="b")
    key, name = DocumentKey.of(first), first.name
    documents.create_task(first)
    documents.create_task(first)
    documents.create_task(second, replace=True)
    documents.pause(name, by="ann")
    documents.resume(name)
    documents.delete(name)
    documents.create_task(first)
    found = documents.revisions(key)
    assert [each.number for each in found] == [1, 2, 3, 4]
    assert [each.document for each in found] == [
        plain_document(first),
        plain_document(second),
        None,
        plain_document(first),
    ]
    assert {each.author for each in found} == {ANN}
    assert sorted(each.at_ms for each in found) == [each.at_ms for each in found]
    assert found[0].at_ms > 1_700_000_000_000
    assert _code(lambda: documents.revisions(task_key("none"))) == "MR-4104"


def test_history_keeps_a_bounded_number_of_revisions(
    documents: Store, session: Session, ensemble: Ensemble
) -> None:
    """The numbers grow, and the oldest nodes are deleted."""
    for number in range(history.REVISIONS_MAX + 5):
        documents.create_task(a_capture(topic=f"t{number}"), replace=True)
    found = documents.revisions(task_key("shop-capture"))
    last = history.REVISIONS_MAX + 5
    assert [each.number for each in found] == list(range(6, last + 1))
    assert len(session.children(ensemble.tree.history("task", "shop-capture"))) == len(found)


def test_only_the_last_deleted_documents_keep_their_history(
    documents: Store, session: Session, ensemble: Ensemble, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Names that come and go do not fill ZooKeeper. A document that exists keeps its history."""
    monkeypatch.setattr(history, "DELETED_MAX", 2)
    documents.create_task(a_capture("stays", topic="s"))
    for name in ("one", "two", "three", "four"):
        documents.create_task(a_capture(name))
        documents.delete(name)
    kept = session.children(ensemble.tree.folder("history"))
    assert set(kept) == {"set:shop", "set:warehouse", "task:stays", "task:three", "task:four"}


def test_document_of_an_older_millrace_becomes_a_revision(
    documents: Store, session: Session, ensemble: Ensemble
) -> None:
    """Its tree has no folder for histories; the document is kept when it is replaced, without an author."""
    old, new = a_capture(topic="a"), a_capture(topic="b")
    session.create(ensemble.tree.task(old.name), task_content(Desired(old)))
    folder = ensemble.tree.folder("history")
    for name in session.children(folder):
        for number in session.children(f"{folder}/{name}"):
            session.delete(f"{folder}/{name}/{number}", version=-1)
        session.delete(f"{folder}/{name}", version=-1)
    session.delete(folder, version=-1)
    with ensemble.session() as later:
        upgraded = Store(later, ensemble.tree, author=ANN)
        assert upgraded.create_task(new, replace=True) is Outcome.REPLACED
        found = [(each.author, each.document) for each in upgraded.revisions(task_key(old.name))]
    assert found == [(Author(), plain_document(old)), (ANN, plain_document(new))]


def test_set_that_a_task_uses_is_not_deleted(documents: Store) -> None:
    """A capture task and an apply task each hold their set; the wishes about members go with the set."""
    documents.create_task(a_capture(topic="t"))
    documents.create_task(an_apply(to="warehouse", topic="t"))
    for name, user in (("shop", "shop-capture"), ("warehouse", "shop-apply")):
        with pytest.raises(Fatal, match=f"set {name} is used by task {user}") as caught:
            documents.delete_set(name)
        assert caught.value.code == "MR-4140"
    documents.direct("warehouse", lambda known: replace(known, pinned=Member("127.0.0.1", 3306)))
    documents.delete("shop-apply")
    documents.delete_set("warehouse")
    assert set(documents.sets()) == {"shop"}
    assert documents.directives("warehouse") == Directives()
    assert _code(lambda: documents.delete_set("warehouse")) == "MR-4104"


def test_set_is_not_deleted_while_its_task_is_created(
    documents: Store, session: Session, ensemble: Ensemble, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The task is written between the check and the deletion, and the other way round."""
    with ensemble.session() as other:
        rival = Store(other, ensemble.tree)
        _between_check_and_write(monkeypatch, session, lambda: rival.create_task(a_capture()))
        assert _code(lambda: documents.delete_set("shop")) == "MR-4140"
        rival.delete("shop-capture")
        _between_check_and_write(monkeypatch, session, lambda: rival.delete_set("shop"))
        assert _code(lambda: documents.create_task(a_capture())) == "MR-4104"
    assert set(documents.tasks()) == set()


@pytest.mark.parametrize("rival", ["another document", "a pause", "a deletion"])
def test_edits_of_an_outdated_state_are_refused_as_a_whole(
    documents: Store, session: Session, ensemble: Ensemble, rival: str
) -> None:
    """Any change since the documents were read counts; nothing is written."""
    documents.create_task(a_capture(topic="t"))
    seen = documents.documents()
    match rival:
        case "another document":
            documents.create_set(a_set("crm"))
        case "a pause":
            documents.pause("shop-capture", by="ann")
        case _:
            documents.delete("shop-capture")
            documents.create_task(a_capture(topic="t"))
    before = documents.documents()
    edits = [Edit.to(a_capture(topic="u")), Edit.to(an_apply(to="warehouse", topic="t"))]
    with pytest.raises(Retryable) as caught:
        documents.write(seen, edits)
    assert caught.value.code == "MR-4007"
    assert documents.documents() == before


def test_documents_are_judged_after_all_edits(documents: Store) -> None:
    """A topic moves between two tasks, and a new set comes with its tasks; a set goes with them."""
    one, two = a_capture("one", topic="t"), a_capture("two", topic="u")
    documents.write(documents.documents(), [Edit.to(one), Edit.to(two)])
    swapped = [Edit.to(a_capture("one", topic="u")), Edit.to(a_capture("two", topic="t"))]
    documents.write(documents.documents(), swapped)
    new = [Edit.to(a_set("crm")), Edit.to(a_capture("crm", of="crm"))]
    documents.write(documents.documents(), list(reversed(new)))
    documents.write(documents.documents(), [Edit(edit.key, None) for edit in new])
    assert set(documents.sets()) == {"shop", "warehouse"}
    clash = [Edit.to(a_capture("three", topic="v")), Edit.to(a_capture("four", topic="v"))]
    assert _code(lambda: documents.write(documents.documents(), clash)) == "MR-4105"
    assert _code(lambda: documents.write(documents.documents(), [Edit(set_key("shop"), None)])) == (
        "MR-4140"
    )
    assert set(documents.tasks()) == {"one", "two"}


def test_more_than_a_transaction_holds_is_refused(
    documents: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """ZooKeeper would close the connection, and the outcome would be unknown."""
    monkeypatch.setattr(store, "COMMIT_BYTES_MAX", 2000)
    edits = [Edit.to(a_capture(f"t{number}")) for number in range(4)]
    assert _code(lambda: documents.write(documents.documents(), edits)) == "MR-4145"
    assert documents.tasks() == {}


@pytest.mark.parametrize(
    "patterns",
    [
        pytest.param(0, marks=pytest.mark.chaos, id="many changes"),
        pytest.param(1000, id="large contents"),
    ],
)
def test_largest_transaction_is_accepted_by_zookeeper(documents: Store, patterns: int) -> None:
    """The limit is below that of the server, which counts more than the contents."""
    tables = TableFilter(
        include=tuple(f"shop.table_{number:04}" for number in range(patterns)) or ("*.*",)
    )
    size = len(task_content(Desired(replace(a_capture(), tables=tables))))
    count = store.COMMIT_BYTES_MAX // (2 * size + 3 * store.CHANGE_BYTES) + 1
    while not _is_written(documents, [a_capture(f"t{number}") for number in range(count)], tables):
        count -= max(1, count // 20)
    assert len(documents.tasks()) == count
    whole = [a_capture(f"u{number}") for number in range(count + count // 10 + 1)]
    assert not _is_written(documents, whole, tables)


def _is_written(documents: Store, tasks: list[CaptureTask], tables: TableFilter) -> bool:
    """False if that is too much for one transaction."""
    edits = [Edit.to(replace(task, tables=tables)) for task in tasks]
    try:
        documents.write(documents.documents(), edits)
    except Fatal as error:
        if error.code != "MR-4145":
            raise
        return False
    return True
