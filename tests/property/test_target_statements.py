"""Statements under random rules: a text for the target has no name that the view does not have, clause by clause."""

from dataclasses import dataclass
from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from millrace.schemas.gtid import Flavour
from millrace.schemas.record.control import (
    DdlRecord,
    DdlStatement,
    EventPlace,
    Origin,
    RecordSource,
    RecordTransaction,
)
from millrace.schemas.sql.tokens import tokenize
from millrace.schemas.table.structure import TableSchema
from millrace.schemas.view.target_statement import TargetStatement, target_statement
from millrace.schemas.view.view import Mask, MaskKind, TableRule, View
from tests.kit.apply.tables import integer, table, text

NAMES = ("ca", "cb", "cc", "cd", "ce")
T = table("d", "t", integer("id"), *(text(name) for name in NAMES))
BEGIN = "ALTER TABLE `w`.`s` "
COLUMN = st.sampled_from(("id", *NAMES, "cx", "cy"))
CLAUSES = st.one_of(
    st.builds("ADD {} INT".format, COLUMN),
    st.builds("ADD COLUMN {} INT DEFAULT 1 AFTER {}".format, COLUMN, COLUMN),
    st.builds("ADD ({} INT, {} INT)".format, COLUMN, COLUMN),
    st.builds("ADD {} INT AS ({} + 1)".format, COLUMN, COLUMN),
    st.builds("DROP {}".format, COLUMN),
    st.builds("DROP COLUMN IF EXISTS {}".format, COLUMN),
    st.builds("MODIFY {} BIGINT AFTER {}".format, COLUMN, COLUMN),
    st.builds("CHANGE {} {} BIGINT".format, COLUMN, COLUMN),
    st.builds("RENAME COLUMN {} TO {}".format, COLUMN, COLUMN),
    st.builds("ALTER {} SET DEFAULT 5".format, COLUMN),
    st.builds("ADD KEY k ({}, {}(4) DESC)".format, COLUMN, COLUMN),
    st.builds("ADD UNIQUE ({})".format, COLUMN),
    st.builds("ADD PRIMARY KEY (id, {})".format, COLUMN),
    st.builds("ADD CHECK ({} > 0)".format, COLUMN),
    st.builds("ADD KEY k ((LOWER({})))".format, COLUMN),
    st.builds("ORDER BY {}".format, COLUMN),
    st.builds("PARTITION BY HASH ({})".format, COLUMN),
    st.sampled_from(["DROP KEY k", "COMMENT 'ca'", "DROP PARTITION p", "FORCE"]),
)


@dataclass(frozen=True)
class Rule:
    """A rule of d.t, with the names that the target does not have."""

    rule: TableRule

    @property
    def absent(self) -> set[str]:
        """Columns of the source that the target has not, or under another name."""
        rule = self.rule
        old = {name for name, _ in rule.rename}
        hidden = set(rule.drop) or ({*NAMES, "cx", "cy"} - set(rule.keep) if rule.keep else set())
        return (hidden | old) - {new for _, new in rule.rename}

    def translated(self, *clauses: str) -> TargetStatement:
        """The statement with these clauses."""
        place = EventPlace(0, 1, "u:1", "f", 4, 0)
        source = RecordSource(Origin(Flavour.MYSQL, "c", "s"), "d", "", place, 0, 7)
        sql = f"ALTER TABLE t {', '.join(clauses)}"
        statement = DdlStatement(sql, "alter_table", (), {"default_database": "d"})
        record = DdlRecord(source, statement, 0, RecordTransaction("u:1", 1, True))
        structures: dict[tuple[str, str], list[TableSchema]] = {("d", "t"): [T]}
        return target_statement(record, View((self.rule,)), structures)


def _is_statement(clauses: list[str]) -> bool:
    """Whether clauses that take the rest of a statement come last."""
    return not any(one.startswith(("ORDER", "PARTITION", "DROP PART")) for one in clauses[:-1])


STATEMENTS = st.lists(CLAUSES, min_size=1, max_size=4).filter(_is_statement)


@st.composite
def rules(draw: st.DrawFn) -> Rule:
    """Columns that are kept or dropped, renamed, masked or added."""
    chosen = draw(st.lists(st.sampled_from(NAMES), unique=True, max_size=3))
    is_kept = draw(st.booleans())
    keep = ("id", *chosen) if is_kept else ()
    drop = () if is_kept else tuple(chosen)
    visible = [name for name in NAMES if (name in keep if is_kept else name not in drop)]
    renamed = [name for name in visible if draw(st.booleans())][:2]
    masked = [name for name in visible if name not in renamed and draw(st.booleans())][:1]
    return Rule(
        TableRule(
            "d.t",
            target="w.s",
            keep=keep,
            drop=drop,
            rename=tuple((name, f"new_{name}") for name in renamed),
            add=(("cy", "1"),) if draw(st.booleans()) else (),
            masks=tuple((name, Mask(MaskKind.REDACT)) for name in masked),
        )
    )


@settings(max_examples=400)
@given(rules(), STATEMENTS)
def test_text_has_only_names_of_the_target(rule: Rule, clauses: list[str]) -> None:
    """No column that is left out or has another name there; a masked one only as a place."""
    found = rule.translated(*clauses)
    tokens = tokenize(found.sql)
    names = {token.name for token in tokens if token.kind in ("word", "quoted")}
    assert not names & rule.absent
    masked = {name for name, _ in rule.rule.masks}
    for before, token in pairwise(tokens):
        assert token.name not in masked or before.word in ("AFTER", "DROP"), found.sql


@settings(max_examples=400)
@given(rules(), STATEMENTS)
def test_clauses_are_translated_one_by_one(rule: Rule, clauses: list[str]) -> None:
    """The text of all is that of each; one without a known text leaves none to the others."""
    alone = [rule.translated(clause) for clause in clauses]
    together = rule.translated(*clauses)
    unknown = [one for one in alone if one.doubt and not one.sql]
    texts = [one.sql.removeprefix(BEGIN) for one in alone if one.sql]
    if not unknown:
        assert together.sql == (f"{BEGIN}{', '.join(texts)}" if texts else "")
        assert bool(together.doubt) == any(one.doubt for one in alone)
    else:
        assert together.doubt
