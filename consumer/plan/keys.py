"""The causality keys of a table's records, from the record's schema and the target's keys and foreign keys.

For each table of the target:

    its row identity                 ROW        the row; without an identity BAG, one token for the whole table
    each further unique key          UNIQUE     whole comparable columns; otherwise its token (coarse)
    a key WITHOUT OVERLAPS           ROW        its columns without the period, because overlaps are not computed here
    a foreign key, on the child      REFERENCE  the parent's columns that it refers to
    the same, on the parent          UNIQUE     these columns, with the same seed
    cascades                         CASCADE    a parent's delete or key change holds the token of every table that it
                                     TOUCH      can reach; every record of that table touches the token
    a foreign key over columns that are not comparable   SERIAL   every record of both tables holds one token

A column is comparable if equal values on the target have equal bytes here (``_method``). All others are COARSE.
Not done here: the key of the table map if the target has another identity. Two rows that share it may be applied in
any order; each is found by the target's own key.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from hashlib import blake2b

import numpy as np
import numpy.typing as npt

from consumer.kernel import hashes
from consumer.row_schemas import Ints, is_decimal
from consumer.sql.table_plan import TablePlan, record_indexes, target_column
from consumer.target.inventory import ForeignKey, Inventory, TableKey, TargetColumn
from schemas.table.structure import INTEGER_CODES, TEMPORAL_CODES, Column, TypeCode

# In these collations printable ASCII differs only by case and trailing spaces. Other characters make the value coarse.
_FOLDABLE = (
    "utf8mb4_0900_ai_ci",
    "utf8mb4_0900_as_ci",
    "utf8mb4_0900_as_cs",
    "utf8mb4_general_ci",
    "utf8mb4_unicode_ci",
    "utf8mb4_unicode_520_ci",
    "utf8mb3_general_ci",
    "utf8mb3_unicode_ci",
    "utf8mb4_uca1400_ai_ci",
    "utf8mb3_uca1400_ai_ci",
    "utf8mb4_uca1400_as_ci",
    "latin1_swedish_ci",
    "latin1_general_ci",
    "ascii_general_ci",
)
_BYTES_TYPES = {"binary", "varbinary", "uuid", "inet4", "inet6"}
_INTEGER_TYPES = {"tinyint", "smallint", "mediumint", "int", "bigint"}


@dataclass(frozen=True, slots=True)
class KeyLine:
    """One key of one table. ``parts`` are pairs of (column of the record, method)."""

    kind: int
    seed: int
    token: int
    parts: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, slots=True)
class KeyPrograms:
    """The input of ``kernel.hashes`` for all slots."""

    key_first: Ints
    keys: Ints
    seeds: npt.NDArray[np.uint64]
    tokens: npt.NDArray[np.uint64]
    parts: Ints

    def entries_max(self, record_count: int) -> int:
        """The maximum number of entries of ``record_count`` records."""
        widest = int(np.diff(self.key_first).max(initial=0))
        return 4 * widest * record_count


def make_key_programs(lines_by_slot: Iterable[tuple[KeyLine, ...]]) -> KeyPrograms:
    """The key lines of all slots as arrays."""
    first, rows, seeds, tokens = [0], [], [], []
    parts: list[tuple[int, int]] = []
    for lines in lines_by_slot:
        for line in lines:
            rows.append((line.kind, len(parts), len(line.parts)))
            seeds.append(line.seed)
            tokens.append(line.token)
            parts.extend(line.parts)
        first.append(len(rows))
    return KeyPrograms(
        np.array(first, np.int64),
        np.array(rows, np.int64).reshape(-1, 3),
        np.array(seeds, np.uint64),
        np.array(tokens, np.uint64),
        np.array(parts, np.int64).reshape(-1, 2),
    )


def key_lines(table_plan: TablePlan, inventory: Inventory) -> tuple[KeyLine, ...]:
    """The keys of one table's records."""
    target = table_plan.target
    place = (target.database, target.table)
    names = tuple(table_plan.layout.table.columns[index].name for index in table_plan.identity)
    lines = []
    if table_plan.identity:
        lines.append(_line(hashes.ROW, place, names, table_plan, list(names)))
    else:
        lines.append(KeyLine(hashes.BAG, 0, _hash("bag", *place)))
    for key in target.unique_keys:
        if key.has_period:
            shared = key.columns[:-2]
            lines.append(_line(hashes.ROW, place, shared, table_plan, list(shared)))
        elif tuple(map(str.casefold, key.columns)) != tuple(map(str.casefold, names)):
            wanted = [name if key.is_whole else "" for name in key.columns]
            lines.append(_line(hashes.UNIQUE, place, key.columns, table_plan, wanted))
    lines.extend(_foreign_lines(place, table_plan, inventory))
    return tuple(lines)


def _foreign_lines(
    place: TableKey, table_plan: TablePlan, inventory: Inventory
) -> Iterable[KeyLine]:
    children = _children(inventory.foreign_keys)
    if any(place in _reach(parent, children) for parent in children):
        yield KeyLine(hashes.TOUCH, 0, _hash("reach", *place))
    for foreign in inventory.foreign_keys:
        if place not in (foreign.child, foreign.parent):
            continue
        is_comparable = _is_comparable(foreign, inventory)
        if not is_comparable:
            yield KeyLine(hashes.SERIAL, 0, _hash("serial", *foreign.parent))
        if place == foreign.child and is_comparable:
            names = list(foreign.columns)
            yield _line(hashes.REFERENCE, foreign.parent, foreign.parent_columns, table_plan, names)
        if place == foreign.parent and is_comparable:
            names = list(foreign.parent_columns)
            yield _line(hashes.UNIQUE, foreign.parent, foreign.parent_columns, table_plan, names)
        if place == foreign.parent and foreign.cascades:
            indexes = record_indexes(table_plan.layout, foreign.parent_columns) or ()
            parts = tuple((index, hashes.EXACT) for index in indexes)
            for reached in sorted(_reach(place, children)):
                yield KeyLine(hashes.CASCADE, 0, _hash("reach", *reached), parts)


def _children(foreign_keys: Iterable[ForeignKey]) -> Mapping[TableKey, list[ForeignKey]]:
    found: dict[TableKey, list[ForeignKey]] = {}
    for foreign in foreign_keys:
        found.setdefault(foreign.parent, []).append(foreign)
    return found


def _reach(parent: TableKey, children: Mapping[TableKey, list[ForeignKey]]) -> set[TableKey]:
    """The tables that a delete or key change in ``parent`` can write, and their children."""
    reached: set[TableKey] = set()
    waiting = [foreign.child for foreign in children.get(parent, ()) if foreign.cascades]
    while waiting:
        table = waiting.pop()
        if table not in reached:
            reached.add(table)
            waiting.extend(foreign.child for foreign in children.get(table, ()))
    return reached


def _is_comparable(foreign: ForeignKey, inventory: Inventory) -> bool:
    """True if both sides have the same type and collation, so that equal keys have equal bytes."""
    child, parent = inventory.tables.get(foreign.child), inventory.tables.get(foreign.parent)
    if child is None or parent is None:
        return False
    for name, parent_name in zip(foreign.columns, foreign.parent_columns, strict=True):
        left, right = target_column(child, name), target_column(parent, parent_name)
        if left is None or right is None or left.generated or right.generated:
            return False
        if left.base_type not in _INTEGER_TYPES and left.base_type not in ("char", "varchar"):
            return False
        unsigned = ("unsigned" in left.type_text) == ("unsigned" in right.type_text)
        if left.base_type != right.base_type or left.collation != right.collation or not unsigned:
            return False
    return True


def _line(
    kind: int, place: TableKey, key: tuple[str, ...], table_plan: TablePlan, names: list[str]
) -> KeyLine:
    """A key over the record's columns ``names`` ("": not comparable), with the seed of ``place`` and ``key``."""
    seed = _hash("key", *place, *map(str.casefold, key))
    token = _hash("token", *place, *map(str.casefold, key))
    parts = []
    for name in names:
        indexes = record_indexes(table_plan.layout, (name,)) if name else None
        target = target_column(table_plan.target, name) if name else None
        if not indexes or target is None or target.generated:
            return KeyLine(hashes.SERIAL, seed, token)  # the record does not contain the value
        parts.append((indexes[0], _method(table_plan.layout.table.columns[indexes[0]], target)))
    return KeyLine(kind, seed, token, tuple(parts))


def _method(column: Column, target: TargetColumn) -> int:
    """How values of this column are compared (``kernel.hashes``)."""
    code = column.type.code
    if code in INTEGER_CODES and target.base_type in _INTEGER_TYPES:
        return hashes.EXACT
    if code is TypeCode.NEWDECIMAL and is_decimal(column):
        return (
            hashes.EXACT if target.type_text.endswith(f",{column.type.scale})") else hashes.COARSE
        )
    if code in TEMPORAL_CODES:
        digits = f"({column.type.fraction_digits})" if column.type.fraction_digits else ""
        same = target.type_text.split("(")[0] + digits == target.type_text
        return hashes.EXACT if same and target.base_type in _TEMPORAL_TYPES else hashes.COARSE
    if column.type.is_text and target.charset:
        if target.collation.endswith(("_bin", "_0900_bin")):
            return hashes.PADDED
        return hashes.FOLDED if target.collation in _FOLDABLE else hashes.COARSE
    if code is TypeCode.YEAR and target.base_type == "year":
        return hashes.EXACT
    if column.type.text is not None and column.type.text.charset == "binary":
        return hashes.EXACT if target.base_type in _BYTES_TYPES else hashes.COARSE
    return hashes.COARSE


_TEMPORAL_TYPES = {"date", "time", "datetime", "timestamp"}


def _hash(*words: str) -> int:
    text = b"".join(len(word.encode()).to_bytes(4, "big") + word.encode() for word in words)
    return int.from_bytes(blake2b(text, digest_size=8).digest(), "big")
