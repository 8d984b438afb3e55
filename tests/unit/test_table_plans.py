"""The memory of a process for a catalogue is bounded by its tables, not by the requests."""

import random
import tracemalloc

from millrace.consumer.records.row_schemas import RowSchemas
from millrace.consumer.tables.table_plans import Catalogue, TablePlans
from millrace.drivers.mysql.catalog import CatalogColumn, CatalogTable, Inventory, UniqueKey
from millrace.schemas.record.avro_schema import envelope_schema
from tests.kit.apply.tables import integer, table
from tests.kit.apply.topic import SET

TABLES = 60
BYTES_MAX = 1 << 20  # keys of all tables take 20 kB; of each combination below, 10 MB


def _plans() -> TablePlans:
    names = [f"t{number}" for number in range(TABLES)]
    texts = {
        100 + number: envelope_schema(SET, table("shop", name, integer("id"))).text
        for number, name in enumerate(names)
    }
    columns = {"id": CatalogColumn("id", "int", "int", "", "", False, False)}
    keys = (UniqueKey("PRIMARY", ("id",), True),)
    tables = {("shop", name): CatalogTable("shop", name, columns, keys) for name in names}
    return TablePlans(Catalogue("1", RowSchemas(texts), Inventory(tables=tables)))


def test_table_combinations_use_bounded_memory() -> None:
    """Each batch has rows of other tables; each table is known once."""
    plans, chance = _plans(), random.Random(1)
    plans.key_programs(range(TABLES))
    tracemalloc.start()
    try:
        for _ in range(2000):
            plans.key_programs(chance.sample(range(TABLES), chance.randint(1, TABLES)))
        grown, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert grown < BYTES_MAX


def test_ddl_statement_makes_no_programs_again() -> None:
    """Another inventory has the same programs, and a new schema keeps the others."""
    first = _plans()
    again = TablePlans(Catalogue("2", first.schemas, Inventory()))
    assert again.programs is first.programs
    text = envelope_schema(SET, table("shop", "new", integer("id"))).text
    more = TablePlans(Catalogue("3", first.schemas.learned(900, text), Inventory()))
    assert more.programs.layouts[TABLES].table.table == "new"
    kept = zip(first.programs.layouts, more.programs.layouts[:TABLES], strict=True)
    assert all(one is other for one, other in kept)


def test_keys_of_later_tables_are_added() -> None:
    """The slots of earlier batches keep their keys; those of a later one get theirs."""
    plans = _plans()
    few = plans.key_programs([3])
    assert list(few.key_first) == [0] * 4 + [1] * (TABLES - 3)
    more = plans.key_programs([5])
    assert list(more.key_first) == [0] * 4 + [1] * 2 + [2] * (TABLES - 5)
    assert plans.key_programs([3, 5]) is more
