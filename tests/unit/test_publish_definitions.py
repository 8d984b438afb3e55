"""The history of a publish task's document, as its progress topic has it."""

from collections.abc import Iterable
from dataclasses import replace

from millrace.consumer.publish.definitions import (
    Definitions,
    as_continued,
    content_of,
    describe,
    weights_in,
)
from millrace.consumer.publish.mark import Definition, Description
from millrace.schemas.documents import (
    Brokers,
    OnChange,
    OutputSettings,
    PublishTask,
    Start,
    TopicAddress,
    TopicCompression,
)
from millrace.schemas.view.collation import CharacterRange, CollationWeights
from millrace.schemas.view.view import Mask, MaskKind, TableRule, View

SECRET = "file:/run/secrets/salt"
MASKED = View((TableRule("shop.*", masks=(("mail", Mask(MaskKind.HMAC, SECRET)),)),))
TASK = PublishTask(name="public", source=TopicAddress(topic="shop", brokers=Brokers("b:1")))


def _definitions(descriptions: Iterable[Description]) -> Definitions:
    """Each follows one seq after the one before."""
    return Definitions.of(Definition(seq, one) for seq, one in enumerate(descriptions))


def test_each_seq_has_the_document_of_its_time() -> None:
    """A change after seq 40 describes the records from 41 on; the first document has no beginning."""
    later = replace(TASK, view=MASKED)
    history = [Definition(7, describe(TASK, {})), Definition(40, describe(later, {SECRET: "f"}))]
    definitions = Definitions.of(history)
    assert definitions.at(0) == definitions.at(40) == TASK
    assert definitions.at(41).view == MASKED.with_fingerprints({SECRET: "f"})
    assert definitions.next_begin(40) == 41
    assert definitions.next_begin(41) is None


def test_another_secret_is_another_definition_and_another_start_is_not() -> None:
    """Equal texts are one definition."""
    task = replace(TASK, view=MASKED)
    text = describe(task, {SECRET: "f"})
    assert text != describe(task, {SECRET: "g"})
    moved = replace(task, start=Start(gtid_set="0-1-7"), accept_ddl=(3,))
    assert text == describe(moved, {SECRET: "f"})


def test_how_topics_are_kept_is_no_other_definition() -> None:
    """Nor how they are compressed: no record differs, so no new topics begin."""
    new = replace(TASK, on_change=OnChange.NEW_TOPICS)
    topics = replace(TASK.topics, compression=TopicCompression.ZSTD)
    kept = replace(topics, settings=OutputSettings(retention_ms=1))
    texts = [describe(one, {}) for one in (new, replace(new, topics=kept))]
    definitions = _definitions(texts)
    assert definitions.begins == (0,)
    assert definitions.last.topics == kept


def test_on_change_alone_is_no_other_definition() -> None:
    """No delivered row differs. It decides about the next change that makes other records."""
    new = replace(TASK, on_change=OnChange.NEW_TOPICS)
    texts = [describe(one, {}) for one in (TASK, new, replace(new, view=MASKED))]
    definitions = _definitions(texts)
    assert definitions.begins == (0, 3)
    versions = [task.topics.pattern for task in definitions.tasks]
    assert versions == [TASK.topics.pattern, f"{TASK.topics.pattern}.v2"]


def test_changes_can_begin_new_topics() -> None:
    """The first topics keep their names."""
    new = replace(TASK, on_change=OnChange.NEW_TOPICS, view=MASKED)
    texts = [
        describe(one, {})
        for one in (TASK, new, replace(new, view=View((TableRule("shop.*"),))), TASK)
    ]
    definitions = _definitions(texts)
    names = [task.topics.name_of("public", "shop", "orders") for task in definitions.tasks]
    first = "public.shop.orders"
    assert names == [first, f"{first}.v2", f"{first}.v3", f"{first}.v3"]


def test_topics_of_the_next_start_follow_the_history() -> None:
    """For a check before it: an unchanged document keeps its version, a changed one gets the next."""
    new = replace(TASK, on_change=OnChange.NEW_TOPICS, view=MASKED)
    history = [Definition(0, describe(TASK, {})), Definition(7, describe(new, {SECRET: "f"}))]
    pattern = TASK.topics.pattern
    for task, secret, wanted in (
        (new, "f", f"{pattern}.v2"),
        (new, "g", f"{pattern}.v3"),
        (replace(new, on_change=OnChange.CONTINUE), "f", f"{pattern}.v2"),
        (TASK, "f", f"{pattern}.v2"),
    ):
        assert as_continued(task, history, {SECRET: secret}).topics.pattern == wanted
    assert as_continued(TASK, (), {}) == TASK


def test_weights_are_stored_and_serve_records_refused_without_them() -> None:
    """A text that only adds weights is no change of the document: no new topics, and it has the same begin."""
    weights = CollationWeights(
        *(255, "utf8mb4_0900_ai_ci", "8.4", 2, ((), ())),
        ranges=(CharacterRange(65, 65, ((7,), (32,))), CharacterRange(97, 97, ((7,), ()))),
        literals=("a",),
        unfit=(("ch", "a text without 'ch'"),),
    )
    plain = replace(TASK, view=View((TableRule("shop.*"),)), on_change=OnChange.NEW_TOPICS)
    weighing = replace(plain, view=replace(plain.view, collations=(weights,)))
    text = describe(weighing, {})
    assert weights_in(text) == (weights,)
    assert content_of(text) == content_of(describe(plain, {}))
    definitions = Definitions.of(
        [
            Definition(0, describe(TASK, {})),
            Definition(7, describe(plain, {})),
            Definition(9, text),
        ]
    )
    assert definitions.begins == (0, 8)
    assert definitions.at(7).view.collations == ()
    assert definitions.at(8).view.collations == (weights,)
    assert definitions.last.topics.pattern == f"{TASK.topics.pattern}.v2"
