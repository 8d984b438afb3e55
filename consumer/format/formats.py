"""The formats of publish tasks by their names.

Errors of every format, all Fatal: MR-6530 (a text is not valid in its character set), MR-6531 (a date that no calendar
has), MR-6532 (a DECIMAL with more than 38 digits), MR-6533 (the format needs a primary key). The options choose the
first three.
"""

from millrace.consumer.format.avro_format import Register, make_avro_format
from millrace.consumer.format.flat_format import make_flat_format
from millrace.consumer.format.json_format import make_json_format
from millrace.consumer.format.table_format import FormatNames, TableFormat
from millrace.errors import Fatal
from millrace.schemas.record.row_layout import RowLayout
from millrace.schemas.view.format_options import FormatName, FormatOptions
from millrace.schemas.view.table_view import TableView


def without_registry(subject: str, _schema: str) -> int:
    """Fatal MR-4101: a document without a registry has another format."""
    raise Fatal("MR-4101", f"registry: no registry for the schema of {subject}")


def make_format(
    options: FormatOptions,
    view: TableView,
    layout: RowLayout,
    names: FormatNames,
    register: Register = without_registry,
) -> TableFormat:
    """The records of a table in a view; Fatal MR-6532, MR-6533. ``register``: for the formats in Avro."""
    if options.name.is_avro:
        return make_avro_format(options, view, layout, names, register)
    if options.name in (FormatName.MAXWELL_JSON, FormatName.CANAL_JSON):
        return make_flat_format(options, view, layout)
    return make_json_format(options, view, layout, names)
