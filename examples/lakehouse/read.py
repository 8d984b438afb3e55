"""Prints the rows of a table that lakehouse.py keeps, read without Spark, as JSON, one a line.

pip install -r readers.txt
python read.py deltalake /data/lake/shop.orders          # or: duckdb-delta
python read.py pyiceberg /data/lake/shop/orders          # or: duckdb-iceberg
"""

import json
import sys
from pathlib import Path

import duckdb
from deltalake import DeltaTable
from duckdb_extensions import import_extension
from pyiceberg.table import StaticTable

reader, table = sys.argv[1], Path(sys.argv[2])
if reader == "deltalake":
    rows = DeltaTable(table).to_pyarrow_table().to_pylist()
elif reader == "duckdb-delta":
    import_extension("delta")
    rows = duckdb.sql(f"SELECT * FROM delta_scan('{table}')").to_arrow_table().to_pylist()
else:
    version = (table / "metadata/version-hint.text").read_text()
    metadata = str(table / f"metadata/v{version}.metadata.json")
    if reader == "pyiceberg":
        rows = StaticTable.from_metadata(metadata).scan().to_arrow().to_pylist()
    else:
        import_extension("avro")
        import_extension("iceberg")
        query = f"SELECT * FROM iceberg_scan('{metadata}')"
        rows = duckdb.sql(query).to_arrow_table().to_pylist()
for row in rows:
    if not row["mr_deleted"]:
        columns = {name: value for name, value in row.items() if name[:3] != "mr_"}
        print(json.dumps(columns, default=str, ensure_ascii=False))
