"""Which columns of partial row images are generated, and so are no loss.

MariaDB (seen with 11.8.9, not with 11.4.5 and 10.11.18) leaves generated columns out of both images of UPDATE and
DELETE under every ``binlog_row_image``, also the hidden hash columns of UNIQUE keys over long columns. Rows that an
UPDATE or a REPLACE inserts on the way (FOR PORTION OF, system versioning) may be without them too. A session with
another ``binlog_row_image`` leaves out other columns, so both must be distinguished (before images, tried on 11.8):

    FULL, FULL_NODUP    all but the generated columns
    MINIMAL             the primary key only, if there is one; else as FULL
    NOBLOB              all but the generated columns, and every BLOB or TEXT outside the primary key; without a primary
                        key as FULL

In a table without a primary key, a unique key over NOT NULL columns counts as one, also in the table map. The after
image of an UPDATE may be without other columns, so both images must be without the same ones. A generated column of
MariaDB is never NOT NULL and never in a primary key.
"""

from collections.abc import Sequence

from millrace.errors import Fatal
from schemas.gtid import Flavour
from schemas.table.structure import TableSchema, TypeCode

_LEFT_OUT = frozenset({TypeCode.BLOB, TypeCode.BLOB_COMPRESSED, TypeCode.JSON, TypeCode.GEOMETRY})
_LEFT_OUT_ALWAYS = TypeCode.BLOB  # by NOBLOB, outside the primary key


def partial_images(table: TableSchema, images: Sequence[Sequence[bool]]) -> Fatal:
    """MR-6504 with the columns that at least one image is without."""
    in_all = map(all, zip(*images, strict=True))
    names = [c.name for c, is_there in zip(table.columns, in_all, strict=True) if not is_there]
    what = f"row images of {table.full_name} without all columns: {', '.join(names)} missing"
    return Fatal("MR-6504", what, table=table.full_name)


def are_generated(table: TableSchema, images: Sequence[Sequence[bool]], flavour: Flavour) -> bool:
    """Whether the columns that the images of an UPDATE or DELETE are without must be generated ones."""
    present = images[0]
    if flavour is not Flavour.MARIADB or any(image != present for image in images):
        return False
    key = set(table.primary_key)
    there = {index for index, is_there in enumerate(present) if is_there}
    absent = set(range(len(table.columns))) - there
    if not key <= there or not all(table.columns[index].nullable for index in absent):
        return False
    return not key or not (there == key or _may_be_noblob(table, there - key, absent))


def _may_be_noblob(table: TableSchema, there: set[int], absent: set[int]) -> bool:
    codes = [column.type.code for column in table.columns]
    if not any(codes[index] in _LEFT_OUT for index in absent):
        return False
    return not any(codes[index] is _LEFT_OUT_ALWAYS for index in there)
