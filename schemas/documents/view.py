"""The view of a task: the list ``tables``, or ``include`` and ``exclude``.

    tables:
      - from: shop_*.orders_*
        to: warehouse.orders
        where: "status = 'paid' AND crc32(id) % 4 = 1"
        columns: {drop: [note], rename: {mail: email}, add: {shard: "{1}"}}
        mask: {email: hmac-sha256(file:/run/secrets/salt), card: redact, name: truncate(1)}

``schemas.view.view`` has the meaning of each field. What a table's structure must be like is checked with the table.
"""

import re
from collections.abc import Callable
from typing import TypeVar

from millrace.schemas.documents import readers
from millrace.schemas.documents.fields import Fields, Unreadable, shortened, shown
from millrace.schemas.documents.model import ApplyTask
from millrace.schemas.documents.readers import described
from millrace.schemas.documents.secret import SecretReference
from millrace.schemas.table.table_filter import SYSTEM_DATABASES, TableFilter
from millrace.schemas.view.expression import Refused, canonical, parse
from millrace.schemas.view.view import (
    SAME_NAME,
    Mask,
    MaskKind,
    TableRule,
    View,
    places_of,
    plain_view,
    star_count,
    view_of_filter,
)

RULES_MAX = 1000
COLUMNS_MAX = 4096  # MySQL's own limit
NAME_CHARACTERS_MAX = 64  # of a column, as MySQL's
RULE_EXAMPLE = "{from: shop.*, columns: {drop: [note]}}"
COLUMNS_EXAMPLE = "{drop: [note], rename: {mail: email}, add: {shard: '{1}'}}"

_MASK = re.compile(r"(hmac-sha256|truncate|redact)(?:\((.*)\))?", re.DOTALL)
_LENGTH = re.compile(r"[1-9]\d{0,3}", re.ASCII)
_MASK_WANTED = "redact, truncate(CHARACTERS) or hmac-sha256(file:/path/of/the/key)"

T = TypeVar("T")


def take_task_view(fields: Fields) -> View:
    """The view of a task: ``tables``, else what ``include`` and ``exclude`` admit."""
    view = take_view(fields, needed=False)
    pattern = readers.table_pattern
    include = fields.take_each("include", pattern, needed=False, count_max=RULES_MAX)
    exclude = fields.take_each("exclude", pattern, default=(), count_max=RULES_MAX)
    if view.rules and (include or exclude):
        name = "include" if include else "exclude"
        fields.refuse(name, f"{name} and tables", "one of them")
    return view if view.rules else view_of_filter(TableFilter(include or ("*.*",), exclude))


def refuse_unbuilt(fields: Fields, task: ApplyTask) -> None:
    """Refuse what an apply task can't do yet if its view changes names, columns or rows."""
    if task.view.as_filter is not None:
        return
    for number, rule in enumerate(task.view.rules):
        place, database = f"tables[{number}]", rule.target.partition(".")[0]
        if database.lower() in SYSTEM_DATABASES:
            fields.refuse(f"{place}.to", rule.target, "a database that is not the system's")
        if rule.merge:
            wanted = "a name for each table: apply tasks do not merge tables yet"
            fields.refuse(f"{place}.merge", "true", wanted)


def plain_task_view(view: View, *, with_exclude: bool) -> dict[str, object]:
    """``include`` and ``exclude`` if they can say it, else ``tables``.

    ``with_exclude``: an empty ``exclude`` is written, too.
    """
    if (tables := view.as_filter) is not None:
        exclude = {"exclude": list(tables.exclude)} if tables.exclude or with_exclude else {}
        return {"include": list(tables.include), **exclude}
    return {"tables": plain_view(view)}


def take_view(fields: Fields, *, needed: bool = True) -> View:
    """The field ``tables``; each problem has its path. A view without rules if it may be absent, and is."""
    parts = fields.parts("tables", example=RULE_EXAMPLE, count_max=RULES_MAX, needed=needed)
    return View(tuple(_rule(part) for part in parts))


def _rule(fields: Fields) -> TableRule:
    columns = fields.part("columns", example=COLUMNS_EXAMPLE, needed=False)
    rule = TableRule(
        source=fields.take("from", readers.table_pattern, ""),
        target=fields.take("to", _target, SAME_NAME, needed=False),
        where=fields.take("where", _condition, "", needed=False),
        keep=columns.take_each("keep", column, default=(), count_max=COLUMNS_MAX),
        drop=columns.take_each("drop", column, default=(), count_max=COLUMNS_MAX),
        rename=columns.take("rename", _names, (), needed=False),
        add=columns.take("add", _constants, (), needed=False),
        masks=fields.take("mask", _masks, (), needed=False),
        merge=fields.take("merge", readers.flag, False, needed=False),
    )
    if rule.keep and rule.drop:
        columns.refuse("keep", "keep and drop", "one of them")
    _check_places(fields, rule)
    columns.finish()
    fields.finish()
    return rule


def _check_places(fields: Fields, rule: TableRule) -> None:
    """Each ``{…}`` of the rule has a text."""
    stars = star_count(rule.source)
    known = {"database", "table", *(str(number) for number in range(1, stars + 1))}
    texts = [("to", rule.target)]
    texts += [(f"columns.add.{name}", value) for name, value in rule.add if isinstance(value, str)]
    for place, text in texts:
        for word in places_of(text):
            if word not in known:
                fields.refuse(
                    place,
                    f"{{{word}}}",
                    f"one of {', '.join(f'{{{one}}}' for one in sorted(known))}",
                )


@described(type="string", minLength=1, maxLength=NAME_CHARACTERS_MAX)
def column(value: object) -> str:
    """The name of a column."""
    if not isinstance(value, str) or not 0 < len(value) <= NAME_CHARACTERS_MAX:
        raise Unreadable(f"the name of a column, 1 to {NAME_CHARACTERS_MAX} characters")
    return value


@described(type="string", pattern=r"^[^.]+\.[^.]+$", maxLength=200)
def _target(value: object) -> str:
    """``database.table``, in which ``{…}`` may stand for a part of the source's names."""
    wanted = "database.table, such as warehouse.{table}"
    if not isinstance(value, str) or len(value) > 200 or value.count(".") != 1:
        raise Unreadable(wanted)
    if not all(value.split(".")) or not value.isprintable():
        raise Unreadable(wanted)
    return value


@described(type="string", minLength=1)
def _condition(value: object) -> str:
    """A condition, in its canonical text."""
    if not isinstance(value, str):
        raise Unreadable("a condition, such as status = 'paid'")
    try:
        return canonical(parse(value))
    except Refused as refused:
        raise Unreadable(refused.wanted, found=refused.found) from refused


def _pairs(value: object, read: Callable[[object], T], wanted: str) -> tuple[tuple[str, T], ...]:
    """A mapping of columns, in the order of their names."""
    if not isinstance(value, dict) or not 0 < len(value) <= COLUMNS_MAX:
        raise Unreadable(wanted)
    pairs = [(column(name), _of_column(name, inner, read)) for name, inner in value.items()]
    return tuple(sorted(pairs, key=lambda pair: pair[0]))


def _of_column(name: str, value: object, read: Callable[[object], T]) -> T:
    try:
        return read(value)
    except Unreadable as problem:
        found = problem.found or shown(value)
        raise Unreadable(problem.wanted, found=f"{found} for {shortened(name)}") from problem


@described(type="object", additionalProperties={"type": "string"}, minProperties=1)
def _names(value: object) -> tuple[tuple[str, str], ...]:
    return _pairs(value, column, "a mapping of names and new names, such as {mail: email}")


@described(
    type="object",
    additionalProperties={"oneOf": [{"type": "string"}, {"type": "integer"}]},
    minProperties=1,
)
def _constants(value: object) -> tuple[tuple[str, str | int], ...]:
    return _pairs(value, _constant, "a mapping of columns and values, such as {shard: '{1}'}")


def _constant(value: object) -> str | int:
    is_number = isinstance(value, int) and not isinstance(value, bool) and abs(value) < 2**63
    if not is_number and not isinstance(value, str):
        raise Unreadable("a text or a whole number", found=shown(value))
    return value  # type: ignore[return-value]  # one of these


@described(type="object", additionalProperties={"type": "string"}, minProperties=1)
def _masks(value: object) -> tuple[tuple[str, Mask], ...]:
    return _pairs(value, _mask, f"a mapping of columns and masks, each {_MASK_WANTED}")


def _mask(value: object) -> Mask:
    written = _MASK.fullmatch(value) if isinstance(value, str) else None
    if written is None:
        raise Unreadable(_MASK_WANTED, found="a mask that is not shown: it may have a secret")
    kind, content = MaskKind(written[1]), written[2]
    if kind is MaskKind.REDACT and content is None:
        return Mask(kind)
    if kind is MaskKind.TRUNCATE and _LENGTH.fullmatch(content or ""):
        return Mask(kind, length=int(content))
    if kind is MaskKind.HMAC and content and SecretReference.parse(content) is not None:
        return Mask(kind, secret=content)
    raise Unreadable(_MASK_WANTED, found=f"{kind} with a content that is not shown")
