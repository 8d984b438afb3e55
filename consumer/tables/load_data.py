"""LOAD DATA LOCAL for large runs of inserts. It costs the server two thirds of the CPU time of a multi-row INSERT.

A field is a text, and a literal of INSERT may be a number. The server treats the two differently in some columns: 0 in
a YEAR column is the year 0000, '0' is 2000. So each column has one of these forms:

    value of the record          column of the target                     form
    integer                      integer, DECIMAL                         the field
    DECIMAL, unsigned BIGINT     integer, DECIMAL                         the field
    FLOAT, DOUBLE                FLOAT, DOUBLE                            the field
    text, label, date, time      text, ENUM, SET, JSON, date, time        the field
    integer                      YEAR                                     CAST(field AS UNSIGNED)
    BIT                          BIT                                      CAST(field AS UNSIGNED)
    bytes                        BINARY, VARBINARY, BLOB                  UNHEX(field)

If a column is read into a variable, so is an AUTO_INCREMENT column: MariaDB otherwise gives the value 0 of its field a
new number, even under NO_AUTO_VALUE_ON_ZERO.

A table with another column takes INSERT, and so does one with a trigger, because a trigger may use the same user
variables. With LOCAL the server makes errors of rows warnings and skips rows, so the caller must see that it did not.
"""

from collections.abc import Iterable

from millrace.consumer.records.row_schemas import is_decimal
from millrace.consumer.tables.table_plan import TablePlan
from millrace.drivers.mysql.catalog import CatalogColumn, CatalogTable, Inventory
from millrace.schemas.sql.quoting import quoted, table_name
from millrace.schemas.table.structure import INTEGER_CODES, Column, TypeCode

LOAD_ROWS_MAX = 5_000  # some Galera servers commit every 10,000 rows (wsrep_load_data_splitting)

_INTEGERS = {"tinyint", "smallint", "mediumint", "int", "bigint"}
_NUMBERS = {*_INTEGERS, "decimal"}
_FLOATS = {"float", "double"}
_TEXTS = {"char", "varchar", "tinytext", "text", "mediumtext", "longtext", "enum", "set", "json"}
_TEXTS |= {"date", "time", "datetime", "timestamp"}
_BYTES = {"binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob"}
_FIELD, _NUMBER, _HEX = "", "CAST(%s AS UNSIGNED)", "UNHEX(%s)"


def load_statement(table_plan: TablePlan, inventory: Inventory) -> bytes | None:
    """The statement that loads rows of ``TablePlan.insert.shape``; None if the table takes INSERT."""
    if table_plan.target.key in inventory.triggers:
        return None
    columns = table_plan.layout.table.columns
    branches = table_plan.layout.branches
    forms = [
        (column, _form(columns[index], branches[index], column))
        for index, column in table_plan.columns
    ]
    if not forms or any(form is None for _, form in forms):
        return None
    return load_sql(table_plan.target, ((column.name, form or "") for column, form in forms))


def load_sql(
    table: CatalogTable, forms: Iterable[tuple[str, str]], *, charset: str = "utf8mb4"
) -> bytes:
    """The statement for these columns of the table.

    A form is "" for the field itself, or SQL with %s in its place. ``charset``: that of the file. Under ``binary`` the
    server takes the bytes of a field as they are.
    """
    fields, sets = list[bytes](), list[bytes]()
    forms = list(forms)
    if any(form for _, form in forms):
        counter = table.auto_increment
        forms = [(column, form or ("%s" if column == counter else "")) for column, form in forms]
    for number, (column, form) in enumerate(forms):
        variable = f"@millrace{number}"
        fields.append(variable.encode() if form else quoted(column))
        if form:
            sets.append(quoted(column) + b"=" + (form % variable).encode())
    sql = b"LOAD DATA LOCAL INFILE 'rows' INTO TABLE "
    sql += table_name(table.database, table.table)
    sql += b" CHARACTER SET " + charset.encode()
    sql += b" FIELDS TERMINATED BY '\\t' ESCAPED BY '\\\\' LINES TERMINATED BY '\\n'"
    return sql + b" (" + b",".join(fields) + b")" + (b" SET " + b",".join(sets) if sets else b"")


def _form(source: Column, branches: tuple[str, ...], target: CatalogColumn) -> str | None:
    """The form of a column; None if it needs INSERT. ``branches``: those of its values in a record."""
    code, base = source.type.code, target.base_type
    value = next(branch for branch in branches if branch != "null")
    if code in INTEGER_CODES or code is TypeCode.NEWDECIMAL:
        return _FIELD if base in _NUMBERS and (value != "bytes" or is_decimal(source)) else None
    if code is TypeCode.YEAR or code is TypeCode.BIT:
        return _NUMBER if base == code.name.lower() else None
    if code in (TypeCode.FLOAT, TypeCode.DOUBLE):
        return _FIELD if base in _FLOATS else None
    if value == "string":
        return _FIELD if base in _TEXTS else None
    return _HEX if base in _BYTES and source.type.text is not None else None
