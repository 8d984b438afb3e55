"""A source's database and a target's under a view, on one server: statements are executed on the source and applied.

``differences`` compares the structures that the server lists: those of the target must be those of the source, under
the rule, which is applied here to names alone. Columns that the view adds or masks, and the target's own, are not
compared.
"""

from dataclasses import dataclass, field, replace

from millrace.deploy.servers import DatabaseServer
from millrace.schemas.documents import ApplyTask
from millrace.schemas.view.view import Mask, MaskKind, TableRule, View
from tests.kit.apply.local import apply_task, run_once
from tests.kit.apply.tables import integer, table, text
from tests.kit.apply.topic import RecordStream

COLUMNS = (
    "SELECT COLUMN_NAME, COLUMN_TYPE, IS_NULLABLE, COLUMN_DEFAULT, COLLATION_NAME, EXTRA, GENERATION_EXPRESSION,"
    " COLUMN_COMMENT FROM information_schema.COLUMNS WHERE TABLE_SCHEMA = %s AND TABLE_NAME = %s"
)
INDEXES = (
    "SELECT INDEX_NAME, NON_UNIQUE, SEQ_IN_INDEX, COLUMN_NAME, SUB_PART, INDEX_TYPE FROM information_schema.STATISTICS"
    " WHERE TABLE_SCHEMA = %s AND TABLE_NAME = %s ORDER BY INDEX_NAME, SEQ_IN_INDEX"
)
PARENTS = (
    "SELECT COLUMN_NAME, REFERENCED_TABLE_SCHEMA, REFERENCED_TABLE_NAME, REFERENCED_COLUMN_NAME"
    " FROM information_schema.KEY_COLUMN_USAGE WHERE TABLE_SCHEMA = %s AND TABLE_NAME = %s"
    " AND REFERENCED_TABLE_NAME IS NOT NULL"
)
OWN = "own"  # a column of the target alone


@dataclass(frozen=True)
class Structure:
    """The columns by name, the keys by name, the foreign keys. Names of columns are in lower case."""

    columns: dict[str, tuple[object, ...]]
    keys: dict[str, list[tuple[object, ...]]]
    parents: frozenset[tuple[object, ...]]

    @classmethod
    def of(cls, server: DatabaseServer, database: str, name: str) -> "Structure":
        """As the server lists it."""
        rows = server.execute(COLUMNS, (database, name))
        keys: dict[str, list[tuple[object, ...]]] = {}
        for key, unique, _, column, length, kind in server.execute(INDEXES, (database, name)):
            keys.setdefault(str(key), []).append((str(column).lower(), unique, length, kind))
        columns = {str(column).lower(): tuple(rest) for column, *rest in rows}
        return cls(columns, keys, frozenset(server.execute(PARENTS, (database, name))))


@dataclass
class Twins:
    """The databases ``name`` and ``house``, and a task of the first name."""

    server: DatabaseServer
    name: str
    house: str
    stream: RecordStream = field(default_factory=RecordStream)

    @property
    def rule(self) -> TableRule:
        """It changes much of orders_N."""
        return TableRule(
            f"{self.name}.orders_*",
            f"{self.house}.sales_{{1}}",
            where="(`kind` = 1)",
            drop=("note",),
            rename=(("mail", "email"),),
            add=(("shard", "{1}"),),
            masks=(("card", Mask(MaskKind.REDACT)),),
        )

    @property
    def task(self) -> ApplyTask:
        """Tables r_* have another name only, and all others have none in the view."""
        names = TableRule(f"{self.name}.r_*", f"{self.house}.s_{{1}}")
        kept = TableRule(f"{self.name}.k_*", f"{self.house}.k_{{1}}", keep=("id", "mail"))
        return replace(apply_task(self.name), view=View((self.rule, names, kept)))

    def create(self) -> None:
        """A table of each changing rule, and its twin as an operator makes it; a row of each has been applied."""
        columns = "kind INT, mail VARCHAR(80), card VARCHAR(40), note VARCHAR(40), free VARCHAR(40)"
        for made in ("orders_1", "k_1"):
            self.server.execute(f"CREATE TABLE {self.name}.{made} (id INT PRIMARY KEY, {columns})")
        self.server.execute(
            f"CREATE TABLE {self.house}.sales_1 ({OWN} INT DEFAULT 7, id INT PRIMARY KEY, kind INT, email VARCHAR(80),"
            " card VARCHAR(40), shard VARCHAR(255), free VARCHAR(40))"
        )
        self.server.execute(f"CREATE TABLE {self.house}.k_1 (id INT PRIMARY KEY, mail VARCHAR(80))")
        for made in ("orders_1", "k_1"):
            of = (text("mail"), text("card"), text("note"), text("free"))
            schema = table(self.name, made, integer("id"), integer("kind", nullable=True), *of)
            row: dict[str, object] = dict.fromkeys(("mail", "card", "note", "free"), "a")
            self.stream.insert(schema, row | {"id": 1, "kind": 1})
        self.stream.commit()
        self.apply()

    def execute(self, sql: str) -> None:
        """On the source, and then by the task."""
        text_ = sql.format(self.name, self.house)
        self.server.execute(text_, db=self.name)
        self.stream.ddl(text_, database=self.name)
        self.apply()

    def apply(self) -> None:
        """One run of the task."""
        run_once(self.server, self.task, self.stream)

    def differences(self) -> dict[str, object]:
        """Tables whose structure on the target is not that of the view; {} if all are equal."""
        found: dict[str, object] = {}
        tables = {str(name) for (name,) in self.server.execute(f"SHOW TABLES IN {self.name}")}
        there = {str(name) for (name,) in self.server.execute(f"SHOW TABLES IN {self.house}")}
        wanted = {self._target(name): name for name in tables if self._target(name)}
        if wanted.keys() != there:
            found["tables"] = wanted.keys() ^ there
        for target, source in wanted.items():
            if target in there:
                rule = {"o": self.rule, "k": TableRule("k", keep=("id", "mail"))}.get(source[0])
                before = Structure.of(self.server, self.name, source)
                left, right = (
                    viewed(before, rule),
                    viewed(Structure.of(self.server, self.house, target), rule, is_target=True),
                )
                parents = {
                    (column, self.house, self._target(str(parent)), of)
                    for column, _, parent, of in left.parents
                }
                left = Structure(left.columns, left.keys, frozenset(parents))
                if left != right:
                    found[target] = (left, right)
        return found

    def _target(self, name: str) -> str:
        for begin, new in (("orders_", "sales_"), ("r_", "s_"), ("k_", "k_")):
            if name.startswith(begin):
                return new + name.removeprefix(begin)
        return ""


def viewed(structure: Structure, rule: TableRule | None, *, is_target: bool = False) -> Structure:
    """The parts that can be compared: keys only if the view has all of their columns."""
    if rule is None:
        return structure
    masked = {name for name, _ in rule.masks}
    renamed = dict(rule.rename)
    names: dict[str, str] = {}
    for name in structure.columns:
        if is_target:
            names |= (
                {} if name in masked | {OWN} | {added for added, _ in rule.add} else {name: name}
            )
        elif name not in rule.drop and (not rule.keep or name in rule.keep):
            new = renamed.get(name, name)
            names |= {} if new in masked else {name: new}
    columns = {new: structure.columns[old] for old, new in names.items()}
    keys = {
        key: [(names[str(column)], *rest) for column, *rest in of]
        for key, of in structure.keys.items()
        if all(column in names for column, *_ in of)
    }
    return Structure(columns, keys, structure.parents)
