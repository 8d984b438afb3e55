"""The history of a publish task's document: which one describes the record of which seq.

With ``on_change: new_topics`` the names of topics end in ``.v2`` after the first change, ``.v3`` after the next, and so
on. A change takes effect at one seq of the set topic, in all slots. The history is stored with the task's progress, so
a replay or a rebuild makes the same records again. So are the weights that the source's collations had.
"""

import json
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from millrace.consumer.publish.mark import Definition, Description
from millrace.schemas.documents import (
    OnChange,
    Placement,
    PublishTask,
    Start,
    parse_task,
    plain_task,
)
from millrace.schemas.json_input import load_json
from millrace.schemas.plain import from_plain, to_plain
from millrace.schemas.view.collation import CollationWeights

# fields of a document that change how records are read, written or kept, or what a later change does, and no record
_OTHER = frozenset(("kafka", "registry", "compression", "topic_settings", "on_change"))


@dataclass(frozen=True, slots=True)
class Definitions:
    """``begins``: the first seq of each document, ascending; the first is 0. ``tasks``: the documents."""

    begins: tuple[int, ...]
    tasks: tuple[PublishTask, ...]

    @classmethod
    def of(cls, history: Iterable[Definition]) -> "Definitions":
        """From descriptions (``describe``), each with the last seq that earlier ones describe. Fatal MR-41xx.

        One of the same content also describes the records before: those that wait for weights were refused.
        """
        tasks: dict[int, PublishTask] = {}
        version = 1
        before, begin = "", 0
        weights: dict[
            str, CollationWeights
        ] = {}  # one object for all definitions, which executors get
        for definition in history:
            description = definition.description
            stored: Any = load_json(description.document)
            plain = content_of(description)
            is_change, before = bool(before) and plain != before, plain
            if is_change:
                begin = definition.from_seq + 1
            task = parse_task(stored["document"], origin="a definition in the progress topic")
            assert isinstance(task, PublishTask)
            for name in description.weights.keys() - weights.keys():
                weights[name] = _weights(description.weights[name])
            view = replace(
                task.view.with_fingerprints(stored["secrets"]),
                collations=tuple(weights[name] for name in description.weights),
            )
            version += is_change and task.on_change is OnChange.NEW_TOPICS
            topics = task.topics
            if version > 1:
                topics = replace(topics, pattern=f"{topics.pattern}.v{version}")
            tasks[begin] = replace(task, view=view, topics=topics)
        return cls(tuple(tasks), tuple(tasks.values()))

    @property
    def last(self) -> PublishTask:
        """The newest document."""
        return self.tasks[-1]

    def at(self, seq: int) -> PublishTask:
        """The document that describes the record of this seq."""
        return self.tasks[self._place(seq)]

    def begin_of(self, seq: int) -> int:
        """The first seq of the document that describes the record of this seq."""
        return self.begins[self._place(seq)]

    def next_begin(self, seq: int) -> int | None:
        """The first seq of the next document; None if that of ``seq`` is the last."""
        place = self._place(seq) + 1
        return self.begins[place] if place < len(self.begins) else None

    def _place(self, seq: int) -> int:
        return max(bisect_right(self.begins, seq) - 1, 0)


def as_continued(
    task: PublishTask, history: Sequence[Definition], fingerprints: Mapping[str, str]
) -> PublishTask:
    """The task with the names of its topics if it continues after this history."""
    reached = history[-1].from_seq + 1 if history else 0
    last = Definition(reached, describe(task, fingerprints))
    return replace(task, topics=Definitions.of([*history, last]).last.topics)


def describe(task: PublishTask, fingerprints: Mapping[str, str]) -> Description:
    """The document as it is stored: without its begin, its place and its operator's answers.

    ``fingerprints``: those of the view's secrets. Another secret is another definition.
    """
    weights = {one.hash: _text(to_plain(one)) for one in task.view.collations}
    view = replace(task.view, collations=())
    content = replace(task, start=Start(), placement=Placement(), accept_ddl=(), view=view)
    stored = {"document": plain_task(content), "secrets": dict(fingerprints)}
    return Description(_text(stored), weights)


def content_of(description: Description) -> str:
    """The part of a description that makes records what they are: two equal ones are one definition."""
    stored: Any = load_json(description.document)
    document = {name: value for name, value in stored["document"].items() if name not in _OTHER}
    return _text({"document": document, "secrets": stored["secrets"]})


def weights_in(description: Description) -> tuple[CollationWeights, ...]:
    """The weights in a description."""
    return tuple(map(_weights, description.weights.values()))


def _weights(text: str) -> CollationWeights:
    return from_plain(CollationWeights, load_json(text))


def _text(stored: object) -> str:
    return json.dumps(stored, sort_keys=True, separators=(",", ":"))
