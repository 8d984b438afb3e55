"""The outputs of a publish task (``consumer.checks.outputs``), with what only the source knows about its conditions.

The source is asked if a condition compares texts that it weighs, or names a column that may be a UUID of MariaDB. The
binlog has UUIDs as BINARY(16) with bytes in another order. A condition on one is refused.
"""

from collections.abc import Callable, Collection
from dataclasses import replace

from millrace.consumer.checks.outputs import Outputs, outputs_of
from millrace.consumer.view.source_texts import may_have_uuids, read_source_texts, weighs_texts
from millrace.schemas.documents import PublishTask, SetDocument
from millrace.schemas.table.structure import TableSchema


def compared_with_source(
    task: PublishTask, tables: Collection[TableSchema], source: Callable[[], SetDocument]
) -> Outputs:
    """The output topics of these tables, and what is wrong with them. ``source`` gives the set's document.

    MR-1005 is among the problems if the account must not see a table that may have UUIDs.
    Errors: those of ``source``, and of a source that does not answer.
    """
    if not weighs_texts(task.view, tables) and not may_have_uuids(task.view, tables):
        return outputs_of(task, tables)
    texts = read_source_texts(task.view, tables, source())
    weighing = replace(task, view=replace(task.view, collations=texts.weights))
    outputs = outputs_of(weighing, tables)
    return replace(outputs, problems=(*outputs.problems, *texts.problems))
