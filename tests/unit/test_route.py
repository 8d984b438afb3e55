"""The tables of a topic that an apply task applies."""

from millrace.consumer.tables.filter import Route
from millrace.schemas.documents import TableFilter
from millrace.schemas.sql.statement import classify
from millrace.schemas.view.view import TableRule, View, view_of_filter


def _route(*exclude: str, folds: bool = False) -> Route:
    return Route(view_of_filter(TableFilter(("shop.*",), exclude)), folds)


def test_patterns_ignore_case_only_on_a_folding_target() -> None:
    """As for capture: otherwise names are compared unchanged."""
    assert _route("shop.Log").admits("shop", "log")
    assert not _route("shop.Log", folds=True).admits("Shop", "LOG")


def test_statement_is_skipped_if_it_names_left_out_tables_only() -> None:
    """A statement about both kinds is not, and its left-out tables are known."""
    route = _route("shop.log")
    assert route.skips(classify("TRUNCATE log", "shop"))
    both = classify("RENAME TABLE log TO kept", "shop")
    assert not route.skips(both)
    assert route.left_out(both) == ("shop.log",)
    assert not route.skips(classify("ALTER TABLE kept ADD x INT", "shop"))


def test_statement_about_a_database_follows_include() -> None:
    """A pattern of `include` decides, because a table of the database may be admitted."""
    route = _route("shop.log")
    assert not route.skips(classify("DROP DATABASE shop", ""))
    assert route.skips(classify("DROP DATABASE bank", ""))
    assert not Route().skips(classify("DROP DATABASE bank", ""))


def test_texts_of_stars_keep_their_case_on_a_folding_target() -> None:
    """They become names and values in a view: a load reads them from the source's catalogue."""
    view = View((TableRule("shop_*.Orders", "w.{1}_{table}"),))
    match = view.match("SHOP_Eu", "orders", folds=True)
    assert match is not None
    assert match.name == ("w", "Eu_orders")
    assert view.match("SHOP_Eu", "orders") is None
