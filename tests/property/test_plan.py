"""A plan leads to the wanted documents, whatever exists."""

from hypothesis import given
from hypothesis import strategies as st

from millrace.schemas.status import TaskReport, TaskState
from millrace.zk.changes.changes import make_plan
from millrace.zk.tree.documents import Document, DocumentKey
from tests.kit.control.control import a_capture, a_set, an_apply
from tests.kit.control.tree import documents_of, wanted_of

SETS = st.sampled_from(["s", "t"])
TOPICS = st.sampled_from(["x", "y"])
NAMES = st.sampled_from(["a", "b", "c"])
DOCUMENTS: st.SearchStrategy[list[Document]] = st.lists(
    st.one_of(
        SETS.map(a_set),
        st.builds(lambda name, of, topic: a_capture(name, of=of, topic=topic), NAMES, SETS, TOPICS),
        st.builds(lambda name, to, topic: an_apply(name, to=to, topic=topic), NAMES, SETS, TOPICS),
    ),
    max_size=8,
    unique_by=DocumentKey.of,
)
REPORTS = st.dictionaries(
    NAMES,
    st.builds(TaskReport, st.sampled_from(TaskState), seq=st.sampled_from([0, 7])),
)


@given(DOCUMENTS, DOCUMENTS, REPORTS, st.booleans())
def test_plan_leads_to_the_wanted_documents(
    before: list[Document], after: list[Document], reports: dict[str, TaskReport], prune: bool
) -> None:
    """Its edits give them, and with --prune no other. The next plan has no edit and no restart."""
    seen, wanted = documents_of(*before), wanted_of(*after, prune=prune)
    plan = make_plan(seen, wanted, reports)
    found = seen.after(plan.edits)
    assert found == (dict(wanted.documents) if prune else {**seen.after([]), **wanted.documents})
    there = documents_of(*(each for each in found.values() if not isinstance(each, Exception)))
    again = make_plan(there, wanted, reports)
    assert (again.edits, again.restarts, again.problems) == ([], (), ())
