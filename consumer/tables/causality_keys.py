"""The causality keys of a table's records, from the record's schema and the target's keys and foreign keys.

For each table of the target:

    its row identity                 ROW        the row; without an identity BAG, one token for the whole table
    a sequence                       SERIAL     its token
    a system-versioned table         SERIAL     its token, and that of every table that a cascade can reach
    a table with FTS_DOC_ID          SERIAL     its token, because InnoDB takes these numbers in order only
    each further unique key          UNIQUE     comparable columns or their first characters; otherwise its token
    a key WITHOUT OVERLAPS           ROW        its columns without the period, because overlaps are not computed here
    a foreign key, on the child      REFERENCE  the parent's columns that it refers to
    the same, on the parent          UNIQUE     these columns, with the same seed
    cascades                         CASCADE    a parent's delete or key change holds the token of every table that it
                                     TOUCH      can reach; every record of that table touches the token
    a foreign key over columns that are not comparable   SERIAL   every record of both tables holds one token

A column is comparable if equal values on the target have equal bytes or letters here (``_method``). All others are
COARSE. Columns of a foreign key may come from source columns of other types than the target's. Such values have other
bytes, so they are COARSE, and all records of a foreign key hold its token (``_is_natural``).
Not done here: the key of the table map if the target has another identity. Two rows that share it may be applied in
any order; each is found by the target's own key.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from hashlib import blake2b

import numpy as np
import numpy.typing as npt

from millrace.consumer.kernel import hashes, walk
from millrace.consumer.kernel.groups import find_groups, find_levels
from millrace.consumer.records.numbers import Groups, Ints, RecordNumbers
from millrace.consumer.records.row_schemas import RowSchemas, is_decimal, make_programs
from millrace.consumer.records.rows import Rows, Values
from millrace.consumer.tables.table_plan import TablePlan, record_indexes, target_column
from millrace.consumer.view.layout import Constant
from millrace.drivers.mysql.catalog import CatalogColumn, ForeignKey, Inventory, TableKey
from millrace.drivers.mysql.collation import Codes, is_exact
from millrace.schemas.table.structure import (
    INTEGER_CODES,
    LABELLED_CODES,
    STRING_CODES,
    TEMPORAL_CODES,
    Column,
    TypeCode,
)

_BYTES_TYPES = {"binary", "varbinary", "uuid", "inet4", "inet6"}
_BYTES_TYPES |= {"tinyblob", "blob", "mediumblob", "longblob"}
_INTEGER_TYPES = {"tinyint", "smallint", "mediumint", "int", "bigint"}
_TEXT_TYPES = {"char", "varchar"}
_FOREIGN_TYPES = {"decimal", "date", "time", "datetime", "timestamp", "year", "binary", "varbinary"}

Part = tuple[int, int, int, int]  # column of the record, method, fold, length


@dataclass(frozen=True, slots=True)
class KeyLine:
    """One key of one table. ``why``: the reason why the table's changes are applied in order; "" if they are not."""

    kind: int
    seed: int
    token: int
    parts: tuple[Part, ...] = ()
    holds_token: bool = False
    why: str = ""


@dataclass(frozen=True, slots=True)
class KeyPrograms:
    """The input of ``kernel.hashes`` for all slots."""

    key_first: Ints
    keys: Ints
    seeds: npt.NDArray[np.uint64]
    tokens: npt.NDArray[np.uint64]
    parts: Ints
    folds: Codes


@dataclass(frozen=True)
class KeyEntries:
    """Causality keys: record ``owners[i]`` holds ``hashes[i]`` in ``modes[i]``."""

    owners: Ints
    hashes: npt.NDArray[np.uint64]
    modes: npt.NDArray[np.uint8]

    @cached_property
    def by_hash(self) -> Ints:
        """The indexes of the entries, sorted by hash."""
        return np.argsort(self.hashes, kind="stable")

    def groups(self, count: int) -> Groups:
        """The group of each of ``count`` owners."""
        return Groups(find_groups(self.owners, self.hashes, self.modes, self.by_hash, count))

    def levels(self, count: int) -> Ints:
        """The level of each of ``count`` records in seq order."""
        levels: Ints = find_levels(self.owners, self.hashes, self.modes, self.by_hash, count)
        return levels


def make_key_programs(lines_by_slot: Iterable[tuple[KeyLine, ...]], folds: Codes) -> KeyPrograms:
    """The key lines of all slots as arrays."""
    first, rows, seeds, tokens = [0], [], [], []
    parts: list[Part] = []
    for lines in lines_by_slot:
        for line in lines:
            rows.append((line.kind, len(parts), len(line.parts), line.holds_token))
            seeds.append(line.seed)
            tokens.append(line.token)
            parts.extend(line.parts)
        first.append(len(rows))
    return KeyPrograms(
        np.array(first, np.int64),
        np.array(rows, np.int64).reshape(-1, 4),
        np.array(seeds, np.uint64),
        np.array(tokens, np.uint64),
        np.array(parts, np.int64).reshape(-1, 4),
        folds,
    )


def find_keys(rows: Rows, programs: KeyPrograms, numbers: RecordNumbers) -> KeyEntries:
    """The causality keys of these records. Owners are indexes in ``numbers``."""
    room = 4 * int(np.diff(programs.key_first).max(initial=0)) * len(numbers)  # the most entries
    owners = np.empty(room, np.int64)
    values = np.empty(room, np.uint64)
    modes = np.empty(room, np.uint8)
    count = hashes.key_hashes(
        rows.values.payload,
        rows.records[numbers],
        len(numbers),
        rows.cells,
        rows.programs.widths,
        programs.key_first,
        programs.keys,
        programs.seeds,
        programs.tokens,
        programs.parts,
        programs.folds,
        owners,
        values,
        modes,
    )
    return KeyEntries(owners[:count], values[:count], modes[:count])


def constant_hash(
    columns: tuple[Column, CatalogColumn], constant: Constant, inventory: Inventory, folds: Codes
) -> int | None:
    """Of a constant in a column: equal for those that the target calls equal. None: they are not comparable.

    ``columns``: of the view, and of the target. ``folds``: those of the inventory.
    """
    method, fold = _method(*columns, inventory)
    if method == hashes.COARSE:
        return None
    line = KeyLine(hashes.ROW, 0, 0, ((0, method, fold, 0),))
    programs = make_key_programs([(line,)], folds)
    record = [0] * walk.RECORD_WIDTH
    record[walk.OP] = walk.OP_CREATE
    records = np.array([record], np.int64)
    data = np.frombuffer(constant.content, np.uint8)
    cells = np.array([[constant.kind, 0, len(data)]], np.int64)
    # of an image without width, so the first cell is that of the after image
    programs_of_one = replace(make_programs(RowSchemas()), widths=np.array([0], np.int64))
    values = Values(data, np.array([0, len(data)]))
    rows = Rows(values, programs_of_one, records, cells, 0)
    found = find_keys(rows, programs, RecordNumbers(np.array([0])))
    is_comparable = found.modes[0] == hashes.EXCLUSIVE and found.hashes[0] != 0
    return int(found.hashes[0]) if is_comparable else None


def ordered_tables(
    lines_by_table: Iterable[tuple[str, tuple[KeyLine, ...]]],
) -> tuple[tuple[str, str], ...]:
    """The tables whose changes, or part of them, one lane applies, each with the reasons; sorted."""
    found: dict[str, list[str]] = {}
    for table, lines in lines_by_table:
        for line in lines:
            if line.why and line.why not in found.setdefault(table, []):
                found[table].append(line.why)
    return tuple((table, "; ".join(why)) for table, why in sorted(found.items()) if why)


def key_lines(table_plan: TablePlan, inventory: Inventory) -> tuple[KeyLine, ...]:
    """The keys of one table's records."""
    target = table_plan.target
    place = target.key
    names = tuple(table_plan.layout.table.columns[index].name for index in table_plan.identity)
    lines = []
    if target.is_sequence:
        return (KeyLine(hashes.SERIAL, 0, _hash("sequence", *place), why="a sequence"),)
    if table_plan.period:
        serial = KeyLine(hashes.SERIAL, 0, _hash("versions", *place), why="system-versioned")
        return (serial, *_foreign_lines(place, table_plan, inventory))
    if table_plan.identity:
        lines.append(_line(hashes.ROW, _Key(place, names, names), table_plan, inventory))
    else:
        lines.append(KeyLine(hashes.BAG, 0, _hash("bag", *place), why="no usable key"))
    for key in target.unique_keys:
        if key.has_period:
            shared = key.columns[:-2]
            lines.append(_line(hashes.ROW, _Key(place, shared, shared), table_plan, inventory))
        elif not key.is_whole:
            name = (*key.columns, *map(str, key.lengths))
            known = key.columns if key.lengths else ("",) * len(key.columns)
            made = _Key(place, name, known, key.lengths)
            lines.append(_line(hashes.UNIQUE, made, table_plan, inventory))
        elif tuple(map(str.casefold, key.columns)) != tuple(map(str.casefold, names)):
            made = _Key(place, key.columns, key.columns)
            lines.append(_line(hashes.UNIQUE, made, table_plan, inventory))
    if target.has_document_ids:
        why = "FTS_DOC_ID only grows"
        lines.append(KeyLine(hashes.SERIAL, 0, _hash("documents", *place), why=why))
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
            why = f"foreign key of {'.'.join(foreign.child)} over columns that are not comparable"
            yield KeyLine(hashes.SERIAL, 0, _hash("serial", *foreign.parent), why=why)
        if place == foreign.child and is_comparable:
            key = _Key(foreign.parent, foreign.parent_columns, foreign.columns, is_foreign=True)
            yield _line(hashes.REFERENCE, key, table_plan, inventory)
        if place == foreign.parent and is_comparable:
            names = foreign.parent_columns
            key = _Key(foreign.parent, names, names, is_foreign=True)
            yield _line(hashes.UNIQUE, key, table_plan, inventory)
        if place == foreign.parent and foreign.cascades:
            indexes = record_indexes(table_plan.layout, foreign.parent_columns) or ()
            parts = tuple((index, hashes.EXACT, 0, 0) for index in indexes)
            # the records of a deletion in a system-versioned table are updates
            kind = hashes.SERIAL if table_plan.period else hashes.CASCADE
            for reached in sorted(_reach(place, children)):
                yield KeyLine(kind, 0, _hash("reach", *reached), parts)


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
    if child is None or parent is None or child.period or parent.period:
        return False
    for name, parent_name in zip(foreign.columns, foreign.parent_columns, strict=True):
        left, right = target_column(child, name), target_column(parent, parent_name)
        if left is None or right is None or left.generated or right.generated:
            return False
        if left.collation != right.collation or not _is_same_type(left, right):
            return False
    return True


def _is_same_type(left: CatalogColumn, right: CatalogColumn) -> bool:
    """Whether both sides of a foreign key compare equal values as equal bytes or letters."""
    if left.base_type in _INTEGER_TYPES:
        unsigned = ("unsigned" in left.type_text) == ("unsigned" in right.type_text)
        return left.base_type == right.base_type and unsigned
    if left.base_type in _TEXT_TYPES:
        return right.base_type in _TEXT_TYPES
    return left.base_type in _FOREIGN_TYPES and left.type_text == right.type_text


@dataclass(frozen=True, slots=True)
class _Key:
    """``columns`` of ``place`` name the key, ``names`` are the record's columns ("": not in the record)."""

    place: TableKey
    columns: tuple[str, ...]
    names: tuple[str, ...]
    lengths: tuple[int, ...] = ()
    is_foreign: bool = False


def _line(kind: int, key: _Key, table_plan: TablePlan, inventory: Inventory) -> KeyLine:
    """The line of one key. It is SERIAL if the record does not contain what the target compares."""
    words = (*key.place, *map(str.casefold, key.columns))
    seed, token = _hash("key", *words), _hash("token", *words)
    parts: list[Part] = []
    why = ""
    for name, length in zip(key.names, key.lengths or (0,) * len(key.names), strict=True):
        indexes = record_indexes(table_plan.layout, (name,)) if name else None
        target = target_column(table_plan.target, name) if name else None
        if not indexes or target is None or target.generated:
            why = f"unique key over {f'the generated column {name}' if target else 'an expression'}"
            return KeyLine(hashes.SERIAL, seed, token, why=why)
        column = table_plan.layout.table.columns[indexes[0]]
        method, fold = _method(column, target, inventory)
        if key.is_foreign and not _is_natural(column, target):
            method = hashes.COARSE
        if method == hashes.COARSE:
            why = f"key column {name} {target.type_text} {target.collation}".rstrip()
        parts.append((indexes[0], method, fold, length))
    return KeyLine(kind, seed, token, tuple(parts), key.is_foreign, why)


def _method(column: Column, target: CatalogColumn, inventory: Inventory) -> tuple[int, int]:
    """How values of this column are compared (``kernel.hashes``): method and fold."""
    if column.type.is_text or column.type.code in LABELLED_CODES:
        return _text_method(column, target, inventory)
    return (hashes.FLOATING if _is_same_float(column, target) else _plain_method(column, target)), 0


def _text_method(column: Column, target: CatalogColumn, inventory: Inventory) -> tuple[int, int]:
    """The labels of an ENUM or a SET are looked up on the target as texts of its collation."""
    code, is_labelled = column.type.code, target.is_labelled
    is_other = code.name.lower() != target.base_type
    if not target.charset or (is_other and (is_labelled or code in LABELLED_CODES)):
        return hashes.COARSE, 0
    if code is TypeCode.SET and not _has_same_labels(column, target):
        return hashes.COARSE, 0
    if target.collation in inventory.folds:
        return hashes.FOLDED, sorted(inventory.folds).index(target.collation)
    is_plain = is_exact(target.collation) and not is_labelled
    return (hashes.PADDED if is_plain else hashes.COARSE), 0


def _has_same_labels(column: Column, target: CatalogColumn) -> bool:
    """Whether the target has the same labels in the same order. Then two texts are one set only if they are equal."""
    return [label and label.lower() for label in column.type.labels] == target.labels


def _is_same_float(column: Column, target: CatalogColumn) -> bool:
    name = {TypeCode.FLOAT: "float", TypeCode.DOUBLE: "double"}.get(column.type.code)
    return name is not None and target.type_text.removesuffix(" unsigned") == name


def _plain_method(column: Column, target: CatalogColumn) -> int:
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
    if code is TypeCode.YEAR and target.base_type == "year":
        return hashes.EXACT
    if code is TypeCode.BIT and target.type_text == f"bit({column.type.bit_count})":
        return hashes.EXACT
    if column.type.text is not None and column.type.text.charset == "binary":
        return hashes.EXACT if target.base_type in _BYTES_TYPES else hashes.COARSE
    return hashes.COARSE


def _is_natural(column: Column, target: CatalogColumn) -> bool:
    """Whether records have values of this target column always in the same form, as its own type has it."""
    code, base = column.type.code, target.base_type
    if base in _INTEGER_TYPES:
        is_wide = base == "bigint" and "unsigned" in target.type_text
        return code in INTEGER_CODES and is_decimal(column) == is_wide
    if base in _TEXT_TYPES:
        return column.type.is_text
    if base in ("binary", "varbinary"):
        return code in STRING_CODES and f"({column.type.length_bytes_max})" in target.type_text
    if base == "decimal":
        size = f"({column.type.precision},{column.type.scale})"
        return code is TypeCode.NEWDECIMAL and size in target.type_text
    return code is _NATURAL_CODES.get(base)


_NATURAL_CODES = {
    "date": TypeCode.DATE,
    "time": TypeCode.TIME2,
    "datetime": TypeCode.DATETIME2,
    "timestamp": TypeCode.TIMESTAMP2,
    "year": TypeCode.YEAR,
}
_TEMPORAL_TYPES = {"date", "time", "datetime", "timestamp"}


def _hash(*words: str) -> int:
    text = b"".join(len(word.encode()).to_bytes(4, "big") + word.encode() for word in words)
    return int.from_bytes(blake2b(text, digest_size=8).digest(), "big")
