"""Finds what a PromQL expression reads, and the labels of its result, in the tree of a library's parser.

Covers what our alerts and dashboards use; an operation that it does not know is an AssertionError.
"""

import re
from collections.abc import Iterator, Mapping

import promql_parser as p

from millrace.metrics import METRICS, Kind

TARGET = frozenset({"instance", "job"})  # Prometheus adds them at a scrape
# of Prometheus itself, and of its client's collectors in each process
FOREIGN = ("up", "process_cpu_seconds_total", "process_resident_memory_bytes", "process_open_fds")
_KEEPING = frozenset({"rate", "increase", "changes", "predict_linear", "histogram_quantile"})

SERIES: Mapping[str, frozenset[str]] = {
    **dict.fromkeys(FOREIGN, TARGET),
    **{
        name: TARGET | set(metric.labels) | ({"le"} if metric.kind is Kind.HISTOGRAM else set())
        for metric in METRICS.values()
        for name in metric.series
    },
}


def parsed(text: str) -> p.Expr:
    """Return the tree, with Grafana's interval as five minutes. ValueError if Prometheus would refuse it."""
    tree: p.Expr = p.parse(text.replace("$__rate_interval", "5m"))
    return tree


def selectors(tree: p.Expr) -> Iterator[p.VectorSelector]:
    """Yield every selector of series in it."""
    found: list[p.VectorSelector] = []

    def visit(node: p.Expr) -> bool:
        node = node.vector_selector if isinstance(node, p.MatrixSelector) else node
        if isinstance(node, p.VectorSelector):
            found.append(node)
        return True

    p.walk(tree, visit)
    return iter(found)


def labels_of(tree: p.Expr) -> frozenset[str]:
    """Return the labels that its result can have; AssertionError if it groups by one that does not exist."""
    match tree:
        case p.VectorSelector():
            return _of_selector(tree)
        case p.MatrixSelector():
            return _of_selector(tree.vector_selector)
        case p.SubqueryExpr() | p.ParenExpr():
            return labels_of(tree.expr)
        case p.NumberLiteral():
            return frozenset()
        case p.AggregateExpr():
            inner = labels_of(tree.expr)
            wanted = frozenset(tree.modifier.labels if tree.modifier else ())
            assert wanted <= inner, f"{tree}: {wanted - inner}"
            return wanted
        case p.Call():
            return _of_call(tree)
        case p.BinaryExpr():
            return _of_binary(tree)
    raise AssertionError(f"unknown: {tree}")


def _of_selector(selector: p.VectorSelector) -> frozenset[str]:
    assert selector.name in SERIES, f"no such metric: {selector.name}"
    labels = SERIES[selector.name or ""]
    used = {matcher.name for matcher in selector.matchers.matchers}
    assert used <= labels, f"{selector.name} has no label {used - labels}"
    return labels


def _of_call(call: p.Call) -> frozenset[str]:
    name = call.func.name
    arguments = [labels_of(argument) for argument in call.args]
    if name in ("vector", "absent", "time"):
        return frozenset()
    assert name in _KEEPING, f"unknown: {name}"
    return frozenset().union(*arguments) - ({"le"} if name == "histogram_quantile" else set())


def _of_binary(tree: p.BinaryExpr) -> frozenset[str]:
    left, right, modifier = labels_of(tree.lhs), labels_of(tree.rhs), tree.modifier
    if modifier is not None and modifier.matching is not None:
        wanted = frozenset(modifier.matching.labels)
        assert wanted <= left & right, f"{tree}: {wanted - (left & right)}"
    brought = frozenset((modifier.group_labels if modifier else None) or ())
    assert brought <= right, f"{tree}: {brought - right}"
    return (right if _is_scalar(tree.lhs) else left) | brought


def _is_scalar(tree: p.Expr) -> bool:
    """Whether a binary operation takes its labels from the other side."""
    return isinstance(tree, p.NumberLiteral) or (
        isinstance(tree, p.Call) and tree.func.name == "time"
    )


def labels_in_template(text: str) -> set[str]:
    """Return the labels that an annotation or a legend names."""
    return set(re.findall(r"\{\{\s*(?:\$labels\.)?(\w+)\s*\}\}", text))
