"""The history of a publish task's document, as its progress topic has it."""

from dataclasses import replace

from consumer.publish.definitions import Definitions, content_of, stored_text, weights_in
from schemas.documents import (
    Brokers,
    OnChange,
    OutputSettings,
    PublishTask,
    Start,
    TopicAddress,
    TopicCompression,
)
from schemas.view.collation import CharacterRange, CollationWeights
from schemas.view.view import Mask, MaskKind, TableRule, View

SECRET = "file:/run/secrets/salt"
MASKED = View((TableRule("shop.*", masks=(("mail", Mask(MaskKind.HMAC, SECRET)),)),))
TASK = PublishTask(name="public", source=TopicAddress(topic="shop", brokers=Brokers("b:1")))


def test_each_seq_has_the_document_of_its_time() -> None:
    """A change after seq 40 describes the records from 41 on; the first document has no beginning."""
    later = replace(TASK, view=MASKED)
    history = [(7, stored_text(TASK, {})), (40, stored_text(later, {SECRET: "f"}))]
    definitions = Definitions.of(history)
    assert definitions.at(0) == definitions.at(40) == TASK
    assert definitions.at(41).view == MASKED.with_fingerprints({SECRET: "f"})
    assert definitions.next_begin(40) == 41
    assert definitions.next_begin(41) is None


def test_another_secret_is_another_definition_and_another_start_is_not() -> None:
    """Equal texts are one definition."""
    task = replace(TASK, view=MASKED)
    text = stored_text(task, {SECRET: "f"})
    assert text != stored_text(task, {SECRET: "g"})
    moved = replace(task, start=Start(gtid_set="0-1-7"), accept_ddl=(3,))
    assert text == stored_text(moved, {SECRET: "f"})


def test_how_topics_are_kept_is_no_other_definition() -> None:
    """Nor how they are compressed: no record differs, so no new topics begin."""
    new = replace(TASK, on_change=OnChange.NEW_TOPICS)
    topics = replace(TASK.topics, compression=TopicCompression.ZSTD)
    kept = replace(topics, settings=OutputSettings(retention_ms=1))
    texts = [stored_text(one, {}) for one in (new, replace(new, topics=kept))]
    definitions = Definitions.of(enumerate(texts))
    assert definitions.begins == (0,)
    assert definitions.last.topics == kept


def test_on_change_alone_is_no_other_definition() -> None:
    """No delivered row differs. It decides about the next change that makes other records."""
    new = replace(TASK, on_change=OnChange.NEW_TOPICS)
    texts = [stored_text(one, {}) for one in (TASK, new, replace(new, view=MASKED))]
    definitions = Definitions.of(enumerate(texts))
    assert definitions.begins == (0, 3)
    versions = [task.topics.pattern for task in definitions.tasks]
    assert versions == [TASK.topics.pattern, f"{TASK.topics.pattern}.v2"]


def test_changes_can_begin_new_topics() -> None:
    """The first topics keep their names."""
    new = replace(TASK, on_change=OnChange.NEW_TOPICS, view=MASKED)
    texts = [
        stored_text(one, {})
        for one in (TASK, new, replace(new, view=View((TableRule("shop.*"),))), TASK)
    ]
    definitions = Definitions.of(enumerate(texts))
    names = [task.topics.name_of("public", "shop", "orders") for task in definitions.tasks]
    first = "public.shop.orders"
    assert names == [first, f"{first}.v2", f"{first}.v3", f"{first}.v3"]


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
    text = stored_text(weighing, {})
    assert weights_in(text) == (weights,)
    assert content_of(text) == content_of(stored_text(plain, {}))
    definitions = Definitions.of(
        [(0, stored_text(TASK, {})), (7, stored_text(plain, {})), (9, text)]
    )
    assert definitions.begins == (0, 8)
    assert definitions.at(7).view.collations == ()
    assert definitions.at(8).view.collations == (weights,)
    assert definitions.last.topics.pattern == f"{TASK.topics.pattern}.v2"
