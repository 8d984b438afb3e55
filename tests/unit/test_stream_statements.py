"""DDL while tables are loaded: executed, passed, or set aside with the tables that it names."""

from collections.abc import Iterable

import pytest

from millrace.consumer.tables.filter import Route
from millrace.consumer.target.load_range import Copied, LoadRange
from millrace.consumer.write.ddl_scope import Place, Way, verdict
from millrace.drivers.mysql.catalog import TableKey
from millrace.schemas.documents import TableFilter
from millrace.schemas.gtid import Flavour, parse_gtid, parse_gtid_set
from millrace.schemas.sql.statement import classify
from millrace.schemas.view.view import view_of_filter

MAIN, MORE, OTHER, COVERED = ("s", "main"), ("s", "more"), ("s", "other"), ("s", "covered")
RANGE = LoadRange(
    parse_gtid_set(Flavour.MARIADB, "0-1-20"),
    {
        MAIN: Copied(parse_gtid_set(Flavour.MARIADB, "0-1-5")),
        COVERED: Copied(parse_gtid_set(Flavour.MARIADB, "0-1-12"), is_exact=True),
    },
)
VIEW = view_of_filter(TableFilter(("s.*",), ("s.left",)))


def _found(
    sql: str, route: Route, range_: LoadRange | None, *, at: int, is_there: bool = True
) -> tuple[Way, set[str]]:
    place = Place(parse_gtid(Flavour.MARIADB, f"0-1-{at}"), {MAIN, MORE, OTHER, COVERED}, is_there)
    found = verdict(classify(sql, "s"), place, route=route, range_=range_)
    return found.way, {name for _, name in found.tables}


def _main(elsewhere: Iterable[TableKey] = ()) -> Route:
    return Route(VIEW, elsewhere=frozenset(elsewhere))


@pytest.mark.parametrize(
    ("sql", "aside"),
    [
        ("ALTER TABLE main ADD n INT", {"main"}),
        ("TRUNCATE main", {"main"}),
        ("DROP TABLE main, left", {"main"}),
        ("RENAME TABLE covered TO fresh", {"covered", "fresh"}),
        ("RENAME TABLE main TO left", {"main"}),
        ("CREATE TABLE fresh (id INT)", {"fresh"}),
        ("CREATE TABLE fresh LIKE main", {"fresh"}),
        ("CREATE INDEX i ON main (n)", {"main"}),
        ("CREATE SEQUENCE numbers", {"numbers"}),
        ("CREATE DATABASE s", {"main", "more", "other", "covered"}),
        ("DROP DATABASE s", {"main", "more", "other", "covered"}),
    ],
)
def test_statement_in_the_range_sets_its_tables_aside(sql: str, aside: set[str]) -> None:
    """The copied rows may be from before or after it."""
    assert _found(sql, _main(), RANGE, at=15) == (Way.SET_ASIDE, aside)


@pytest.mark.parametrize(
    "sql",
    [
        "ALTER TABLE main ADD n INT",
        "CREATE TABLE fresh (id INT)",
        "DROP DATABASE s",
        "DROP TABLE covered",
    ],
)
def test_statement_after_the_range_is_executed(sql: str) -> None:
    """As always."""
    assert _found(sql, _main(), RANGE, at=21) == (Way.AS_ALWAYS, set())


def test_statement_that_was_copied_is_passed() -> None:
    """Only if the rows of all of its tables are from after it."""
    assert _found("ALTER TABLE covered ADD n INT", _main(), RANGE, at=12) == (Way.PASSED, set())
    both = "RENAME TABLE covered TO main"
    assert _found(both, _main(), RANGE, at=12) == (Way.SET_ASIDE, {"covered", "main"})
    assert _found("ALTER TABLE covered ADD n INT", _main(), RANGE, at=13)[0] is Way.SET_ASIDE


@pytest.mark.parametrize(
    "sql",
    ["CREATE VIEW v AS SELECT 1", "GRANT SELECT ON *.* TO u", "TRUNCATE left", "what is this"],
)
def test_statement_without_tables_of_the_task_is_as_always(sql: str) -> None:
    """Views and accounts are recorded, and an unknown statement blocks, in the range, too."""
    for range_ in (RANGE, None):
        assert _found(sql, _main({OTHER}), range_, at=15) == (Way.AS_ALWAYS, set())


def test_missing_database_of_the_range_is_created() -> None:
    """The load did not see it, or created it."""
    assert _found("CREATE DATABASE s", _main(), RANGE, at=15, is_there=False)[0] is Way.AS_ALWAYS
    assert _found("ALTER DATABASE s CHARSET utf8mb4", _main(), RANGE, at=15)[0] is Way.AS_ALWAYS


def test_dropped_database_without_tables_is_dropped_or_passed() -> None:
    """If the load has not created it, there is nothing to drop."""
    place = Place(parse_gtid(Flavour.MARIADB, "0-1-15"), (), is_there=False)
    drop, empty = classify("DROP DATABASE s", ""), LoadRange(RANGE.end, {})
    assert verdict(drop, place, route=_main(), range_=empty).way is Way.PASSED
    there = Place(place.gtid, (), is_there=True)
    assert verdict(drop, there, route=_main(), range_=empty).way is Way.AS_ALWAYS


@pytest.mark.parametrize(
    ("sql", "way", "aside"),
    [
        ("ALTER TABLE other ADD n INT", Way.PASSED, set()),
        ("DROP TABLE other, left", Way.PASSED, set()),
        ("ALTER TABLE main ADD n INT", Way.AS_ALWAYS, set()),
        ("RENAME TABLE other TO fresh", Way.SET_ASIDE, {"other", "fresh"}),
        ("DROP TABLE main, other", Way.SET_ASIDE, {"main", "other"}),
        ("CREATE TABLE fresh LIKE other", Way.SET_ASIDE, {"fresh"}),
        ("ALTER TABLE main ADD FOREIGN KEY (n) REFERENCES other (id)", Way.SET_ASIDE, {"main"}),
        ("DROP DATABASE s", Way.SET_ASIDE, {"main", "more", "other", "covered"}),
        ("DROP DATABASE another", Way.AS_ALWAYS, set()),
        ("CREATE DATABASE s", Way.AS_ALWAYS, set()),
    ],
)
def test_main_leaves_statements_about_tables_of_others(sql: str, way: Way, aside: set[str]) -> None:
    """One that names tables of both sets all of them aside."""
    assert _found(sql, _main({OTHER}), None, at=30) == (way, aside)


@pytest.mark.parametrize(
    ("sql", "way", "aside"),
    [
        ("ALTER TABLE main ADD n INT", Way.AS_ALWAYS, set()),
        ("ALTER TABLE more ADD n INT", Way.PASSED, set()),
        ("RENAME TABLE main TO more", Way.SET_ASIDE, {"main"}),
        ("RENAME TABLE main TO other", Way.AS_ALWAYS, set()),
        ("CREATE TABLE main LIKE more", Way.SET_ASIDE, {"main"}),
        ("CREATE DATABASE s", Way.PASSED, set()),
        ("DROP DATABASE s", Way.SET_ASIDE, {"main", "other"}),
        ("DROP DATABASE another", Way.PASSED, set()),
        ("CREATE VIEW v AS SELECT 1", Way.PASSED, set()),
        ("TRUNCATE left", Way.PASSED, set()),
        ("what is this", Way.SET_ASIDE, {"main", "other"}),
    ],
)
def test_side_stream_executes_only_what_is_its_own(sql: str, way: Way, aside: set[str]) -> None:
    """Main is ahead: it has executed or recorded everything else."""
    route = Route(VIEW, only=frozenset({MAIN, OTHER}))
    assert _found(sql, route, None, at=30) == (way, aside)
    if way is Way.AS_ALWAYS:
        assert _found(sql, route, RANGE, at=15)[0] is Way.SET_ASIDE


def test_task_without_loads_executes_everything() -> None:
    """The usual case asks for nothing else."""
    assert _found("DROP DATABASE s", Route(), None, at=1) == (Way.AS_ALWAYS, set())
