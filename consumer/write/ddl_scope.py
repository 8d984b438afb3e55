"""Decides about a DDL statement that may concern tables which a load copies, or which another stream applies.

    as always      executed, recorded or refused, as without loads (``consumer.write.ddl``)
    passed         only the mark moves: another stream meets the statement, or the copied rows have its effect
    set aside      only the mark moves, and the tables wait for a load that copies them as they are then

    stream      the statement names                                   in the range of the load     after it
    main        tables of main only                                   set aside (1)                as always
    main        tables of main, and others or LIKE and FOREIGN KEY    set aside, all               set aside, all
                of others
    main        tables of others only (and left out ones)             passed                       passed
    main        CREATE DATABASE that exists                           set aside, its tables        as always
    main        DROP DATABASE                                         set aside, its tables        as always (2)
    side        tables of the side stream only                        set aside (1)                as always
    side        some of its tables                                    set aside                    set aside
    side        nothing of it, views, accounts, databases             passed                       passed (3)
    side        something that is not understood                      set aside, all its tables    set aside, all

    (1) passed, if the copied rows of each table have the statement's source transaction
    (2) set aside, if the database has a table of others. An empty one is dropped, then or by the load.
    (3) main is ahead and has executed or recorded it. DROP DATABASE: its tables are set aside.

Tables that foreign keys relate to those that are set aside are set aside with them (``consumer.tables.related``).
A statement that is set aside is not executed later: the load copies the structure and the rows that result from it, or
drops a table that the source no longer has. Pure.
"""

from collections.abc import Collection
from dataclasses import dataclass
from enum import Enum, auto

from millrace.consumer.tables.filter import Route
from millrace.consumer.target.load_range import LoadRange
from millrace.drivers.mysql.catalog import TableKey
from millrace.schemas.gtid import AnyGtid
from millrace.schemas.sql.statement import APPLIED_KINDS, Kind, Statement


class Way(Enum):
    AS_ALWAYS = auto()
    PASSED = auto()
    SET_ASIDE = auto()


@dataclass(frozen=True, slots=True)
class Verdict:
    """``tables``: those that are set aside."""

    way: Way
    tables: frozenset[TableKey] = frozenset()


_AS_ALWAYS, _PASSED = Verdict(Way.AS_ALWAYS), Verdict(Way.PASSED)


@dataclass(frozen=True, slots=True)
class Place:
    """Where a statement is met: its source transaction, and what the target has.

    ``is_there``: whether the database that it names exists.
    """

    gtid: AnyGtid
    on_target: Collection[TableKey]
    is_there: bool = False


def verdict(
    statement: Statement, place: Place, *, route: Route, range_: LoadRange | None
) -> Verdict:
    """The way of a statement that the start does not cover. Its names are as the target stores them."""
    if route.admits_all and range_ is None:
        return _AS_ALWAYS
    if route.only is not None:
        return _of_side(statement, place, route.only, range_)
    if statement.kind not in APPLIED_KINDS:
        return _AS_ALWAYS
    is_inside = range_ is not None and range_.end.covers(place.gtid)
    if statement.databases:
        return _of_database(statement, place, route, range_ if is_inside else None)
    named = _named(statement)
    mine = frozenset(name for name in named if route.admits(*name))
    others = named & route.elsewhere
    if not mine:
        return _PASSED if others else _AS_ALWAYS
    if others or _read(statement) & route.elsewhere:
        return Verdict(Way.SET_ASIDE, mine | others)
    if not is_inside:
        return _AS_ALWAYS
    return _unless_covered(mine, place, range_)


def _of_side(
    statement: Statement, place: Place, only: frozenset[TableKey], range_: LoadRange | None
) -> Verdict:
    if statement.kind is Kind.UNKNOWN:
        return _aside(only)
    if statement.kind not in APPLIED_KINDS:
        return _PASSED
    if statement.databases:
        dropped = statement.kind is Kind.DROP_DATABASE
        return _aside(frozenset(t for t in only if dropped and t[0] in statement.databases))
    named = _named(statement)
    mine = named & only
    if mine and (mine != named or not _read(statement) <= only):
        return _aside(mine)
    if mine and range_ is not None and range_.end.covers(place.gtid):
        return _unless_covered(mine, place, range_)
    return _AS_ALWAYS if mine else _PASSED


def _of_database(
    statement: Statement, place: Place, route: Route, inside: LoadRange | None
) -> Verdict:
    """``inside``: the range, if the statement is in it."""
    databases = set(statement.databases)
    if not any(map(route.chooses_database, databases)):
        return _AS_ALWAYS
    others = frozenset(name for name in route.elsewhere if name[0] in databases)
    known = {*place.on_target, *(inside.tables if inside else ())}
    here = {name for name in known if name[0] in databases and route.admits(*name)}
    if statement.kind is Kind.CREATE_DATABASE and inside and place.is_there:
        return Verdict(Way.SET_ASIDE, others | here)
    if statement.kind is Kind.DROP_DATABASE and (inside or others):
        if others | here:
            return Verdict(Way.SET_ASIDE, others | here)
        return _AS_ALWAYS if place.is_there else _PASSED
    return _AS_ALWAYS


def _unless_covered(mine: frozenset[TableKey], place: Place, range_: LoadRange | None) -> Verdict:
    if range_ is not None and all(range_.covers(name, place.gtid) for name in mine):
        return _PASSED
    return Verdict(Way.SET_ASIDE, mine)


def _aside(tables: frozenset[TableKey]) -> Verdict:
    return Verdict(Way.SET_ASIDE, tables) if tables else _PASSED


def _named(statement: Statement) -> frozenset[TableKey]:
    return frozenset((name.database, name.table) for name in statement.tables)


def _read(statement: Statement) -> frozenset[TableKey]:
    return frozenset((name.database, name.table) for name in statement.references)
