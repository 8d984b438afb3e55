"""Whether the view and the topics of a publish task suit the tables of its set topic. Pure.

a rule names a column that its table does not have, or masks one whose type has no such mask    MR-5201
two tables have one output topic, and their rules do not say `merge: true`                      MR-4113
a topic's name is too long for Kafka                                                            MR-4113
`partition_by` names a column that is not in the key of the view                                MR-4113
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from millrace.errors import Fatal
from millrace.schemas.documents import PublishTask
from millrace.schemas.documents.readers import TOPIC_CHARACTERS_MAX
from millrace.schemas.table.structure import TableSchema
from millrace.schemas.view.table_view import RuleProblem, TableView, apply_view

Name = tuple[str, str]
PROBLEMS_MAX = 20  # in one message; the others are counted


@dataclass(frozen=True, slots=True)
class Outputs:
    """``topics``: by topic, its tables with their names on the source. ``problems``: each with its path."""

    topics: dict[str, list[str]] = field(default_factory=dict)
    problems: tuple[Fatal, ...] = ()

    def refuse(self) -> None:
        """Raise the problems as one error, with the code and the fix of the first."""
        if not self.problems:
            return
        texts = [problem.message for problem in self.problems[:PROBLEMS_MAX]]
        more = len(self.problems) - len(texts)
        texts += [f"and {more} more"] if more > 0 else []
        first = self.problems[0]
        raise Fatal(first.code, "; ".join(texts), fix=first.own_fix)


def outputs_of(task: PublishTask, tables: Iterable[TableSchema]) -> Outputs:
    """The output topics of these tables, and what is wrong with them."""
    topics: defaultdict[str, list[str]] = defaultdict(list)
    problems: list[Fatal] = []
    separate: set[str] = set()  # topics of a table whose rule does not merge
    for table in tables:
        match = task.view.match(table.database, table.table)
        if match is None:
            continue
        try:
            view = apply_view(task.view, table)
        except RuleProblem as problem:
            place = f"tables[{task.view.rules.index(match.rule)}].{problem.place}"
            what = f"{place}: found {problem.found} in {table.full_name}, wanted {problem.wanted}"
            problems.append(Fatal("MR-5201", what))
            continue
        assert view is not None, "a rule matches the table"
        topic = task.topics.name_of(task.name, *view.name)
        topics[topic].append(table.full_name)
        if not match.rule.merge:
            separate.add(topic)
        problems += [Fatal("MR-4113", text) for text in _problems(task, view, topic)]
    for topic, names in topics.items():
        if len(names) > 1 and topic in separate:
            wanted = "one table in each topic, or `merge: true` in their rules"
            what = f"topics: found {', '.join(names)} in one topic, {topic}, wanted {wanted}"
            problems.append(Fatal("MR-4113", what))
    return Outputs(dict(topics), tuple(problems))


def _problems(task: PublishTask, view: TableView, topic: str) -> Iterator[str]:
    if len(topic) > TOPIC_CHARACTERS_MAX:
        yield (
            f"topics: found a name of {len(topic)} characters for {'.'.join(view.name)},"
            f" wanted at most {TOPIC_CHARACTERS_MAX}"
        )
    columns = task.topics.partition_columns(*view.name)
    if columns is None:
        return
    key = [view.columns[at].name for at in view.key]
    folded = {name.lower() for name in key}
    if others := [name for name in columns if name.lower() not in folded]:
        wanted = f"columns of its key: {', '.join(key)}" if key else "a table with a primary key"
        yield f"partition_by: found {', '.join(others)} for {'.'.join(view.name)}, wanted {wanted}"
