"""The kernel's knowledge of tables, as rows of numbers: made by ``producer.convert.tables``, read by ``rows`` and
``walk``.

``columns[c]``, one row per column:
    OP          what to write (below)              NULLABLE  1: a union with null first
    BRANCH      byte of the value's union branch, -1: not a union
    OTHER       byte of the second branch (bytes of invalid text, number of a missing label), -1: none
    SIZE        bytes of the value in the row image, or of the length before it when IS_PREFIXED is 1
    KEY         place of the column in the record key, -1: not in it
    A, B, C, D  by operation:
        DECIMAL precision, scale | TIME2 DATETIME2 TIMESTAMP2 digits | BYTES_PADDED length
        TEXT bytes per character at most (1, 3, 4) | TEXT_CONVERTED kind of charset, ``first``, ``second``, 1: ASCII
        below 128 | ENUM SET first label, labels, 1: text is never ambiguous
        COMPRESSED  kind of charset or -1: bytes, ``first``, ``second``, bytes per character at most

``tables[t]``, one row per structure:
    FIRST_COLUMN, COLUMN_COUNT      its rows of ``columns``
    RESERVE_BYTES                   room that all values of fixed or bounded size need together
    HEAD_START, HEAD_SIZE           the ``Source`` fields from ``version`` to ``set``, encoded, in ``blob``
    BODY_START, BODY_SIZE           the table map after its table ID, in ``blob``
    SCHEMA_ID, KEY_SCHEMA_ID        KEY_COUNT columns, -1 and 0: no key
    IS_INCLUDED                     0: rows are counted, not written
    IS_UNMEASURED                   1: the table map does not determine the size of a row: rows are not even counted
    MAPPED_IN                       the source transaction (by count) that mapped it last
    VARIANT                         1 + the row of the same table without some columns, 0: none. There BODY is the
                                    bitmap of the columns that are present, and MAPPED_IN the last transaction with
                                    images of an UPDATE or DELETE without the others

``labels[l]`` = start and end in ``blob``: for ENUM the encoded value with its branch, for SET the label's text.
"""

COLUMN_WIDTH = 12
OP, NULLABLE, BRANCH, OTHER, SIZE, IS_PREFIXED, KEY, A, B, C, D = range(11)

TABLE_WIDTH = 14
(
    FIRST_COLUMN,
    COLUMN_COUNT,
    RESERVE_BYTES,
    HEAD_START,
    HEAD_SIZE,
    BODY_START,
    BODY_SIZE,
    SCHEMA_ID,
    KEY_SCHEMA_ID,
    KEY_COUNT,
    IS_INCLUDED,
    IS_UNMEASURED,
    MAPPED_IN,
    VARIANT,
) = range(TABLE_WIDTH)

(
    INT8,
    UINT8,
    INT16,
    UINT16,
    INT24,
    UINT24,
    INT32,
    UINT32,
    INT64,
    UINT64,
    YEAR,
    RAW,  # FLOAT, DOUBLE: Avro has the same bytes
    DECIMAL,
    BIT,
    DATE,
    TIME2,
    DATETIME2,
    TIMESTAMP2,
    OLD_TIME,
    OLD_DATETIME,
    OLD_TIMESTAMP,
    BYTES,
    BYTES_PADDED,
    TEXT,
    TEXT_CONVERTED,
    ENUM,
    SET,
    JSON,
    COMPRESSED,
) = range(29)

# Room for one value of fixed size: the longest is a date's text with its length and branch.
FIXED_VALUE_BYTES_MAX = 48
KEY_COLUMNS_MAX = 64  # the servers allow 16 (MySQL) and 32 (MariaDB) parts
SET_LABELS_MAX = 64  # bits of a value
