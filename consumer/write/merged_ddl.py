"""Statements about tables that a view merges: they change the rows and columns of their source, and nothing of others.

    TRUNCATE, DROP TABLE               DELETE of the rows that have the source's constants, in chunks
    CREATE TABLE                       nothing, if the target has the table
    ALTER TABLE … ADD, DROP COLUMN     see ``consumer.write.merged_columns``
    everything else                    waits for an operator, who is shown the states of all sources

A DELETE can be repeated: no row of the source is written before the mark moves over the statement, and rows of others
do not have its constants.

    killed                     the next run
    between two chunks         deletes the rest
    after the last chunk       deletes nothing, moves the mark
    around an ALTER            as for any statement (``consumer.write.ddl``). From the intent to the end, the source's
                               row says that it alters the table, so no other task decides about it
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from millrace.consumer.tables.filter import Route
from millrace.consumer.tables.merged_sources import rows_condition
from millrace.consumer.target.loads import task_of
from millrace.consumer.target.merged_tables import (
    MergedSource,
    check_not_altered,
    clear_altering,
    forget_source,
    lock_sources,
    put_source,
)
from millrace.consumer.target.progress import Owner, check_fence
from millrace.consumer.write.merged_columns import (
    ColumnChange,
    after_columns,
    column_changes,
    planned,
)
from millrace.drivers.mysql.catalog import CatalogTable, TableKey, read_table
from millrace.drivers.mysql.connection import MySqlSession
from millrace.faults import fault_point, register
from millrace.schemas.record.control import DdlRecord, DdlStatement
from millrace.schemas.sql.quoting import table_name
from millrace.schemas.sql.statement import Kind, Statement, TableName
from millrace.schemas.view.ddl import effect_of
from millrace.schemas.view.view import Match

CHUNK_ROWS = 10_000  # of a DELETE, and of its target transaction

AFTER_CHUNK = register("merge.after_chunk")

_EMPTYING = (Kind.TRUNCATE_TABLE, Kind.DROP_TABLE)


@dataclass(frozen=True, slots=True)
class _Table:
    """A table of the source in a statement, and the target's."""

    source: TableKey
    target: TableKey
    match: Match


@dataclass(frozen=True, slots=True)
class Decided:
    """``alter``: the statement for the target; None: it has been applied. ``waits``: why an operator must decide."""

    alter: DdlStatement | None = None
    waits: str = ""


@dataclass(slots=True)
class MergedDdl:
    """One statement. The target transaction of ``decide`` stays open, and ``begin`` and ``end`` are parts of others."""

    owner: Owner
    record: DdlRecord
    statement: Statement
    route: Route

    @property
    def concerns(self) -> bool:
        """Whether it names a table that the view merges."""
        return any(self._tables((*self.statement.tables, *self.statement.references)))

    @property
    def targets(self) -> frozenset[TableKey]:
        """The merged tables of the target that it concerns."""
        return frozenset(table.target for table in self._tables(self.statement.tables))

    @property
    def on_target(self) -> Statement:
        """The statement with the names of the target's tables."""
        targets = {table.source: table.target for table in self._tables(self.statement.tables)}
        names = []
        for name in self.statement.tables:
            database, table = targets.get((name.database, name.table), (name.database, name.table))
            names.append(replace(name, database=database, table=table))
        return replace(self.statement, tables=tuple(names))

    def decide(self, session: MySqlSession) -> Decided:
        """Delete rows of the source, commit by chunks; or plan the columns. Retryable MR-5023."""
        statement = self.statement
        check_fence(session, self.owner)
        tables = list(self._tables(statement.tables))
        if len(tables) != len(statement.tables) or statement.references or not tables:
            return self._waiting(session, "it names other tables, too")
        if "error_code" in self.record.statement.session:
            return self._waiting(session, "it failed on the source")
        if statement.kind in _EMPTYING:
            return self._emptied(session, tables)
        if statement.kind is Kind.CREATE_TABLE and not statement.selects_rows:
            if read_table(session, tables[0].target) is not None:
                return Decided()
            return self._waiting(session, "the target does not have the table")
        return self._altered(session, tables[0])

    def _tables(self, names: tuple[TableName, ...]) -> Iterator[_Table]:
        folds = self.route.folds_names
        for name in names:
            match = self.route.view.match(name.database, name.table, folds=folds)
            if match is not None and match.rule.merge:
                target = match.name
                if folds:
                    target = (target[0].lower(), target[1].lower())
                yield _Table((name.database, name.table), target, match)

    # ---- rows ------------------------------------------------------------------------------------------------------

    def _emptied(self, session: MySqlSession, tables: list[_Table]) -> Decided:
        for table in tables:
            target = read_table(session, table.target)
            if target is None:
                continue
            check_fence(session, self.owner)
            own, others = self._states(session, table)
            condition = rows_condition(target, own.constants)
            if condition is None or any(
                dict(one.constants) == dict(own.constants) for one in others
            ):
                why = "its rows have the same constants as those of another source"
                return self._waiting(session, why)
            session.commit()
            self._delete(session, target, condition)
        return Decided()

    def _delete(self, session: MySqlSession, target: CatalogTable, condition: str) -> None:
        sql = f"DELETE FROM {table_name(*target.key).decode()} WHERE {condition} LIMIT {CHUNK_ROWS}"
        count = CHUNK_ROWS
        while count == CHUNK_ROWS:
            check_fence(session, self.owner)
            count = session.run(sql.encode())
            session.commit()
            fault_point(AFTER_CHUNK)

    # ---- columns ---------------------------------------------------------------------------------------------------

    def _altered(self, session: MySqlSession, table: _Table) -> Decided:
        changes = column_changes(self.statement, self.record.statement)
        effect = effect_of(self.record, self.route.view, {})
        if changes is None or not effect.passes:
            return self._waiting(
                session, effect.reason or "it does more than ADD and DROP of columns"
            )
        keep = {name.lower() for name in table.match.rule.keep}
        changes = tuple(change for change in changes if not keep or change.column.lower() in keep)
        target = read_table(session, table.target)
        if target is None:
            return self._waiting(session, "the target does not have the table")
        own, others = self._states(session, table)
        if own.altering == self._seq:
            return Decided(self._alter(own.altering_sql, table))
        found = planned(
            changes, own, others, target.columns, lambda: _is_complete(session, target, own, others)
        )
        if found.waits:
            return self._waiting(session, found.waits)
        if found.executed:
            return Decided(self._alter(_sql(table, found.executed), table))
        for source in found.sources:
            put_source(session, table.target, source)
        return Decided()

    def _alter(self, sql: str, table: _Table) -> DdlStatement:
        settings = dict(self.record.statement.session)
        settings.pop("default_database", None)  # of the source
        return DdlStatement(sql, str(Kind.ALTER_TABLE), (table.target,), settings)

    def begin(self, session: MySqlSession, alter: DdlStatement) -> None:
        """With the intent: the source alters the table from now on."""
        (table,) = self._tables(self.statement.tables)
        own, _ = self._states(session, table)
        put_source(session, table.target, replace(own, altering=self._seq, altering_sql=alter.sql))

    def end(self, session: MySqlSession) -> None:
        """With the move of the mark: the states after the statement."""
        for table in self._tables(self.statement.tables):
            own, others = self._states(session, table)
            if self.statement.kind is Kind.DROP_TABLE and own.is_stored:
                forget_source(session, table.target, own)
            if own.altering == self._seq:
                changes = column_changes(self.statement, self.record.statement) or ()
                for source in after_columns(changes, own, others, own.altering_sql):
                    put_source(session, table.target, source)
                clear_altering(session, table.target, own)

    def leave(self, session: MySqlSession) -> None:
        """With the move of the mark over a statement that is not executed, because its tables wait for a load."""
        for table in self._tables(self.statement.tables):
            own, _ = self._states(session, table)
            if own.altering == self._seq:
                clear_altering(session, table.target, own)

    # ---- states ----------------------------------------------------------------------------------------------------

    @property
    def _seq(self) -> int:
        return self.record.source.seq

    def _states(
        self, session: MySqlSession, table: _Table
    ) -> tuple[MergedSource, list[MergedSource]]:
        """The own source, and the others. They stay locked until the end of the target transaction."""
        known, task = lock_sources(session, table.target), task_of(self.owner.task)
        check_not_altered(known, table.target, task=task, seq=self._seq)
        mine = [one for one in known if one.task == task and _alike(one.name, table.source)]
        exact = [one for one in mine if one.name == table.source]
        constants = {name.lower(): value for name, value in table.match.added}
        own = next(
            iter(exact or mine), MergedSource(task, table.source, constants, is_stored=False)
        )
        return own, [one for one in known if not one.is_same(own)]

    def _waiting(self, session: MySqlSession, why: str) -> Decided:
        shown = []
        for table in self._tables(self.statement.tables):
            known = lock_sources(session, table.target)
            states = "; ".join(one.shown for one in known) or "none has written rows"
            shown.append(f"the sources of {'.'.join(table.target)}: {states}")
        return Decided(waits=". ".join((why, *shown)))


def _alike(one: TableKey, other: TableKey) -> bool:
    return [part.lower() for part in one] == [part.lower() for part in other]


def _sql(table: _Table, changes: tuple[ColumnChange, ...]) -> str:
    clauses = ", ".join(change.sql for change in changes)
    return f"ALTER TABLE {table_name(*table.target).decode()} {clauses}"


def _is_complete(
    session: MySqlSession, target: CatalogTable, own: MergedSource, others: list[MergedSource]
) -> bool:
    """Whether each row of the target's table has the constants of one of these sources."""
    conditions = [rows_condition(target, one.constants) for one in (own, *others)]
    if None in conditions:
        return False
    known = " OR ".join(f"({condition})" for condition in conditions)
    name = table_name(*target.key).decode()
    return not session.query(f"SELECT 1 FROM {name} WHERE NOT COALESCE({known}, 0) LIMIT 1")
