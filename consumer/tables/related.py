"""Tables that foreign keys relate: they are loaded together, and set aside together.

If one stream skipped a parent's rows while another wrote those of its children, the target would refuse children whose
parent it does not have, or a cascade would change rows that another stream has yet to write.

Streams know tables by the source's names. The target's foreign keys have the names of a view: ``by_sources`` gives them
those of the source. Pure.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace

from millrace.consumer.tables.filter import Route
from millrace.drivers.mysql.catalog import ForeignKey, TableKey

RELATED = "loaded with a table that a foreign key relates it to"


def by_sources(
    foreign_keys: Iterable[ForeignKey], places: Mapping[TableKey, TableKey], route: Route
) -> tuple[ForeignKey, ...]:
    """The target's foreign keys between tables of the source. ``places``: of all that are known, those on the target.

    Without one that refers to, or is of, a table that no known one is.
    """
    if route.only_chooses:
        return tuple(foreign_keys)
    sources: dict[TableKey, list[TableKey]] = {}
    for source, place in places.items():
        sources.setdefault(place, []).append(source)

    def named(place: TableKey) -> list[TableKey]:
        return sources.get(place, [place] if route.keeps(*place) else [])

    return tuple(
        replace(foreign, child=child, parent=parent)
        for foreign in foreign_keys
        for child in named(foreign.child)
        for parent in named(foreign.parent)
    )


def related(
    tables: Collection[TableKey], foreign_keys: Iterable[ForeignKey], route: Route
) -> frozenset[TableKey]:
    """These tables and all that foreign keys relate to them, directly or not, if the document admits them."""
    pairs = [(key.child, key.parent) for key in foreign_keys if key.child != key.parent]
    found, border = set(tables), set(tables)
    while border:
        border = {
            other
            for child, parent in pairs
            for one, other in ((child, parent), (parent, child))
            if one in border and other not in found and route.chooses(*other)
        }
        found |= border
    return frozenset(found)


def with_related(
    unfit: Mapping[TableKey, str], foreign_keys: Iterable[ForeignKey], route: Route
) -> dict[TableKey, str]:
    """The reasons of these tables, and of those that are set aside with them."""
    names = ", ".join(".".join(name) for name in unfit)
    others = related(unfit.keys(), foreign_keys, route) - unfit.keys()
    return {**unfit, **dict.fromkeys(others, f"{RELATED}: {names}")}
