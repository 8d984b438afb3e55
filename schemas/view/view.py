"""A view as a value: which tables of a set topic others receive, under which names, with which rows and columns.

    View ── TableRule ── columns ── Mask
             source    pattern of database.table; a star's text is {1}, {2}, … in the names and values of the rule
             target    database.table that the rows get
             where     the canonical text of a condition; "" admits all rows
             keep      the only columns that pass; () for all
             drop      columns that do not pass
             rename    (column, new name)
             add       (new name, a text or a whole number)
             masks     (name in the view, Mask)
             merge     whether several tables may have one name
             is_left_out   whether the tables that match are not in the view

The first rule that matches a table decides; a table that no rule matches is not in the view. ``documents.view`` reads
and prints it; ``table_view`` applies it to the structure of a table.
"""

import hashlib
import hmac
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum

from millrace.schemas.table.table_filter import (
    SYSTEM_DATABASES,
    TableFilter,
    database_matches,
    stars,
)
from millrace.schemas.view.collation import CollationWeights

SAME_NAME = "{database}.{table}"

_PLACE = re.compile(r"\{(\w+)\}")


class MaskKind(StrEnum):
    """Replacements of a value."""

    HMAC = "hmac-sha256"
    REDACT = "redact"
    TRUNCATE = "truncate"


def shown_name(source: str, viewed: str) -> str:
    """The name of a table for an operator: the source's, and that of the view if it is another one."""
    return source if source == viewed else f"{source} ({viewed})"


@dataclass(frozen=True, slots=True)
class Mask:
    """``secret`` is the reference of the HMAC's key, ``length`` the number of characters that TRUNCATE leaves.

    ``fingerprint`` is that of the key, if a task has read it: a document has none.
    """

    kind: MaskKind
    secret: str = ""
    length: int = 0
    fingerprint: str = ""

    def __str__(self) -> str:
        content = self.secret or (str(self.length) if self.kind is MaskKind.TRUNCATE else "")
        return f"{self.kind}({content})" if content else str(self.kind)


@dataclass(frozen=True, slots=True)
class TableRule:
    """The tables that one pattern matches; see the module."""

    source: str
    target: str = SAME_NAME
    where: str = ""
    keep: tuple[str, ...] = ()
    drop: tuple[str, ...] = ()
    rename: tuple[tuple[str, str], ...] = ()
    add: tuple[tuple[str, str | int], ...] = ()
    masks: tuple[tuple[str, Mask], ...] = ()
    merge: bool = False
    is_left_out: bool = False

    @property
    def only_admits(self) -> bool:
        """Whether its tables are in the view as they are."""
        return self == TableRule(self.source)


@dataclass(frozen=True, slots=True)
class Match:
    """A rule, and the texts of ``{1}``, ``{database}`` and so on for one table."""

    rule: TableRule
    texts: tuple[tuple[str, str], ...]

    @property
    def name(self) -> tuple[str, str]:
        """Database and table in the view."""
        texts = dict(self.texts)
        database, table = self.rule.target.split(".")  # a name that is filled in may have a dot
        return filled(database, texts), filled(table, texts)

    @property
    def added(self) -> tuple[tuple[str, str | int], ...]:
        """The added columns with their values."""
        texts = dict(self.texts)
        return tuple(
            (name, filled(value, texts) if isinstance(value, str) else value)
            for name, value in self.rule.add
        )


@dataclass(frozen=True, slots=True)
class View:
    """The rules in their order, and how the source weighs the literals of their conditions."""

    rules: tuple[TableRule, ...]
    collations: tuple[CollationWeights, ...] = ()

    def match(self, database: str, table: str, *, folds: bool = False) -> Match | None:
        """The rule that decides about a table; None if the table is not in the view.

        With ``folds``, names are compared without their case. The texts keep it.
        """
        if (decided := self._decided(database, table, folds)) is None:
            return None
        rule, starred = decided
        texts = {str(number): text for number, text in enumerate(starred, 1)}
        texts |= {"database": database, "table": table}
        return Match(rule, tuple(texts.items()))

    def admits(self, database: str, table: str, *, folds: bool = False) -> bool:
        """Whether the table is in the view. ``folds`` as in ``match``."""
        return self._decided(database, table, folds) is not None

    def admits_database(self, database: str, *, folds: bool = False) -> bool:
        """Whether a table of this database may be in the view, so that statements about the database concern it."""
        return database.lower() not in SYSTEM_DATABASES and any(
            database_matches(pattern, database, folds=folds) for pattern in self.patterns
        )

    def _decided(
        self, database: str, table: str, folds: bool
    ) -> tuple[TableRule, tuple[str, ...]] | None:
        """The rule, and the texts of its stars."""
        if database.lower() in SYSTEM_DATABASES:
            return None
        for rule in self.rules:
            if (starred := stars(rule.source, database, table, folds=folds)) is not None:
                return None if rule.is_left_out else (rule, starred)
        return None

    def changes(self, database: str, table: str, *, folds: bool = False) -> bool:
        """Whether the view has the table with another name, or with other rows, columns or values."""
        decided = self._decided(database, table, folds)
        return decided is not None and not decided[0].only_admits

    def changes_in(self, database: str, *, folds: bool = False) -> bool:
        """Whether it may change a table of this database."""
        return any(
            database_matches(rule.source, database, folds=folds)
            for rule in self.rules
            if not rule.is_left_out and not rule.only_admits
        )

    @property
    def target_patterns(self) -> tuple[str, ...]:
        """Patterns of the names that tables may have in the view: those of ``patterns`` if no rule names them."""
        return tuple(
            rule.source if rule.target == SAME_NAME else _PLACE.sub("*", rule.target)
            for rule in self.rules
            if not rule.is_left_out
        )

    def may_have(self, database: str, table: str) -> bool:
        """Whether a table may have this name in the view."""
        if self.as_filter is not None:
            return self.admits(database, table)
        return database.lower() not in SYSTEM_DATABASES and any(
            stars(pattern, database, table) is not None for pattern in self.target_patterns
        )

    def may_name(
        self,
        database: str,
        table: str = "",
        *,
        folds: bool = False,
        but: TableRule | None = None,
    ) -> bool:
        """Whether another table may have this name in the view, by a rule other than ``but``.

        Without ``table``: one of this database.
        """
        targets = (
            _PLACE.sub("*", rule.target)
            for rule in self.rules
            if rule.target != SAME_NAME and rule is not but
        )
        if not table:
            return any(database_matches(target, database, folds=folds) for target in targets)
        return any(stars(target, database, table, folds=folds) is not None for target in targets)

    def moves_all_of(self, database: str, *, folds: bool = False) -> bool:
        """Whether no table is in the database of this name in the view, though it may have tables of this database."""
        rules = (rule for rule in self.rules if not rule.is_left_out)
        return not any(
            database_matches(
                rule.source if rule.target == SAME_NAME else _PLACE.sub("*", rule.target),
                database,
                folds=folds,
            )
            for rule in rules
        )

    @property
    def patterns(self) -> tuple[str, ...]:
        """The patterns of the tables that are in the view, unless an earlier rule leaves them out."""
        return tuple(rule.source for rule in self.rules if not rule.is_left_out)

    @property
    def left_out_patterns(self) -> tuple[str, ...]:
        """The patterns of tables that are not in the view."""
        return tuple(rule.source for rule in self.rules if rule.is_left_out)

    @property
    def as_filter(self) -> TableFilter | None:
        """The same choice of tables, if the view only chooses: all its rows are unchanged."""
        tables = TableFilter(self.patterns, self.left_out_patterns)
        return tables if view_of_filter(tables) == self else None

    @property
    def secrets(self) -> tuple[str, ...]:
        """The references of all secrets, each once."""
        masks = (mask for rule in self.rules for _, mask in rule.masks)
        return tuple(sorted({mask.secret for mask in masks if mask.secret}))

    def with_fingerprints(self, fingerprints: Mapping[str, str]) -> "View":
        """The view whose masks are computed with these secrets alone, by reference."""
        return replace(
            self,
            rules=tuple(
                replace(
                    rule,
                    masks=tuple(
                        (name, replace(mask, fingerprint=fingerprints.get(mask.secret, "")))
                        for name, mask in rule.masks
                    ),
                )
                for rule in self.rules
            ),
        )

    @property
    def hash(self) -> str:
        """SHA-256 in hex: equal for equal views, whatever the order and spelling of their document.

        It depends on the secrets' fingerprints and on weights, if the view has them.
        """
        fingerprints = {
            mask.secret: mask.fingerprint
            for rule in self.rules
            for _, mask in rule.masks
            if mask.fingerprint
        }
        plain: list[object] = [*plain_view(self), *([fingerprints] if fingerprints else [])]
        plain += [collation.hash for collation in self.collations]
        return hashlib.sha256(json.dumps(plain, sort_keys=True).encode()).hexdigest()


def secret_fingerprint(secret: str) -> str:
    """Differs between secrets and does not show them: a part of an HMAC with the secret as its key."""
    digest = hmac.new(secret.encode(), b"millrace: fingerprint of a mask's secret", "sha256")
    return digest.hexdigest()[:16]


ALL_TABLES = View((TableRule("*.*"),))


def view_of_filter(tables: TableFilter) -> View:
    """The view that admits the same tables, unchanged."""
    left_out = tuple(TableRule(pattern, is_left_out=True) for pattern in tables.exclude)
    return View((*left_out, *(TableRule(pattern) for pattern in tables.include)))


def plain_view(view: View) -> list[dict[str, object]]:
    """The rules as a document has them. Fields with their default are left out.

    A document has no field ``left_out``: a view with such a rule is written as ``include`` and ``exclude``.
    """
    return [_plain_rule(rule) for rule in view.rules]


def _plain_rule(rule: TableRule) -> dict[str, object]:
    columns: dict[str, object] = {
        "keep": list(rule.keep),
        "drop": list(rule.drop),
        "rename": dict(rule.rename),
        "add": dict(rule.add),
    }
    plain: dict[str, object] = {
        "from": rule.source,
        "to": rule.target if rule.target != SAME_NAME else "",
        "where": rule.where,
        "columns": {name: value for name, value in columns.items() if value},
        "mask": {name: str(mask) for name, mask in rule.masks},
        "merge": rule.merge,
        "left_out": rule.is_left_out,
    }
    return {name: value for name, value in plain.items() if value}


def star_count(pattern: str) -> int:
    """How many texts a pattern gives: ``{1}`` to ``{n}``."""
    return pattern.count("*")


def places_of(text: str) -> tuple[str, ...]:
    """The words between braces."""
    return tuple(_PLACE.findall(text))


def filled(text: str, texts: Mapping[str, str]) -> str:
    """A name or value with its places filled. KeyError for an unknown place."""
    return _PLACE.sub(lambda place: texts[place[1]], text)
