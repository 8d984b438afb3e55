"""Asks the source how its collations weigh the literals of a view's conditions, and which columns are UUIDs.

The structures are those of the set topic and of the source's catalogue. That also has tables without rows in the
topic, if the account may read them. Any member that answers is asked: members of a set weigh texts alike.

    compares_texts   whether a condition compares a column with a text; then a start asks the source
    reads_octets     whether a condition depends on bytes; then a start asks the source, too
    weighs_texts     whether one of these tables needs weights; only then a task can't start without the source
    SourceTexts      the answers of one member
"""

from collections.abc import Collection, Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass

from millrace.drivers.mysql.catalog import read_collations, read_databases
from millrace.drivers.mysql.connection import MySqlSession, Side, connect
from millrace.drivers.mysql.grants import Role, as_grant_pattern, held_grants, needed_grants
from millrace.drivers.mysql.primary import endpoints
from millrace.drivers.mysql.text_columns import TextColumns, read_text_columns
from millrace.drivers.mysql.weights import read_weights
from millrace.errors import Fatal, MillraceError
from millrace.schemas.documents import SetDocument
from millrace.schemas.gtid import Flavour
from millrace.schemas.table.structure import TableSchema
from millrace.schemas.table.table_filter import SYSTEM_DATABASES
from millrace.schemas.view.collation import CollationWeights
from millrace.schemas.view.condition import weighed_literals
from millrace.schemas.view.expression import (
    COMPARISONS,
    ColumnName,
    Expression,
    Octets,
    Operation,
    Text,
    parse,
)
from millrace.schemas.view.view import View


@dataclass(frozen=True, slots=True)
class SourceTexts:
    """``problems``: conditions on UUIDs, or on what may be one, each with its path in the document."""

    weights: tuple[CollationWeights, ...] = ()
    problems: tuple[Fatal, ...] = ()


def compares_texts(view: View) -> bool:
    """Whether a condition compares a column with a text, which may be a label of an ENUM."""
    return any(
        {type(one) for one in part.operands} == {ColumnName, Text}
        for rule in view.rules
        if rule.where
        for part in _operations(parse(rule.where))
        if part.name in COMPARISONS
    )


def weighs_texts(view: View, tables: Iterable[TableSchema]) -> bool:
    """Whether a condition needs weights for one of these tables."""
    return bool(_wanted(view, tables))


def reads_octets(view: View) -> bool:
    """Whether a condition depends on the bytes of a value, which may be a UUID of MariaDB."""
    return any(
        part.name == "CRC32" or any(isinstance(operand, Octets) for operand in part.operands)
        for rule in view.rules
        if rule.where
        for part in _operations(parse(rule.where))
    )


def may_have_uuids(view: View, tables: Iterable[TableSchema]) -> bool:
    """Whether a condition names a column that is BINARY(16) in the binlog."""
    return any(
        column.type.may_be_uuid and column.name.lower() in names
        for table in tables
        for names in [_named(_condition(view, table))]
        for column in table.columns
    )


def read_source_texts(
    view: View,
    tables: Collection[TableSchema],
    document: SetDocument,
    *,
    known: tuple[CollationWeights, ...] = (),
) -> SourceTexts:
    """Ask a member of the source set. ``known`` weights are kept, and read again only with more literals.

    ``tables``: those of the set topic. Errors: those of the last member, if none answers.
    """
    with _some_member(document) as session:
        columns = list(_columns(session))
        wanted = _wanted(view, (*tables, *(one.texts for one in columns)))
        weights = {one.collation_id: one for one in known}
        missing = {
            number: literals | _literals_of(weights.get(number))
            for number, literals in wanted.items()
            if not literals <= _literals_of(weights.get(number))
        }
        weights |= {one.collation_id: one for one in read_weights(session, missing)}
        problems = [*_uuid_problems(view, columns), *_unseen(view, tables, columns, session)]
    ordered = tuple(weights[number] for number in sorted(weights))
    return SourceTexts(ordered, tuple(problems))


@contextmanager
def _some_member(document: SetDocument) -> Iterator[MySqlSession]:
    failure: MillraceError | None = None
    for endpoint in endpoints(document, Side.SOURCE):
        try:
            session = connect(endpoint, autocommit=True)
        except MillraceError as error:
            failure = error
            continue
        with closing(session):
            yield session
        return
    raise failure or Fatal("MR-1020", "the set has no members")


def _columns(session: MySqlSession) -> Iterator[TextColumns]:
    databases = [name for name in read_databases(session) if name.lower() not in SYSTEM_DATABASES]
    yield from read_text_columns(session, sorted(databases), read_collations(session))


def _literals_of(weights: CollationWeights | None) -> frozenset[str]:
    """The literals that have been read, also those that can't be compared."""
    if weights is None:
        return frozenset()
    return frozenset((*weights.literals, *(literal for literal, _ in weights.unfit)))


def _wanted(view: View, tables: Iterable[TableSchema]) -> dict[int, frozenset[str]]:
    wanted: dict[int, frozenset[str]] = {}
    for table in tables:
        condition = _condition(view, table)
        if condition is None:
            continue
        for number, literals in weighed_literals(condition, table).items():
            wanted[number] = wanted.get(number, frozenset()) | literals
    return wanted


def _condition(view: View, table: TableSchema) -> Expression | None:
    match = view.match(table.database, table.table)
    return parse(match.rule.where) if match is not None and match.rule.where else None


def _operations(tree: Expression) -> Iterator[Operation]:
    if isinstance(tree, Operation):
        yield tree
        for operand in tree.operands:
            yield from _operations(operand)


def _named(tree: Expression | None) -> set[str]:
    """The columns whose values decide, in lower case. NULL is NULL in any type."""
    return {
        operand.name.lower()
        for part in (_operations(tree) if tree is not None else ())
        if part.name != "IS NULL"
        for operand in part.operands
        if isinstance(operand, ColumnName)
    }


def _uuid_problems(view: View, columns: Iterable[TextColumns]) -> Iterator[Fatal]:
    for one in columns:
        names = _named(_condition(view, one.texts))
        uuids = [name for name in one.uuids if name.lower() in names]
        if uuids:
            what = f"{', '.join(uuids)} of type UUID in {one.texts.full_name}"
            place = _place(view, one.texts)
            yield Fatal("MR-5201", f"{place}: found {what}, wanted another column")


def _unseen(
    view: View,
    tables: Iterable[TableSchema],
    columns: Iterable[TextColumns],
    session: MySqlSession,
) -> Iterator[Fatal]:
    """MR-1005 for conditions on what may be a UUID, in tables that MariaDB hides from the account."""
    if session.flavour is not Flavour.MARIADB:
        return
    seen = {(one.texts.database, one.texts.table) for one in columns}
    grants = held_grants(session)
    for table in tables:
        if (table.database, table.table) in seen or not may_have_uuids(view, (table,)):
            continue
        scopes = (as_grant_pattern(f"{table.database}.*"),)
        missing = grants.missing(needed_grants(Role.SNAPSHOT, session.flavour, scopes))
        if missing:
            what = f"{_place(view, table)}: whether {table.full_name} has UUIDs is not known"
            why = f"the account of the source is {missing}"
            yield Fatal("MR-1005", f"{what}: {why}", fix=missing.fix)


def _place(view: View, table: TableSchema) -> str:
    match = view.match(table.database, table.table)
    assert match is not None, "its rule has a condition"
    return f"tables[{view.rules.index(match.rule)}].where"
