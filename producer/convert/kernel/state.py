"""The kernel's state between calls: numbers in one int64 array, and the statuses it returns.

The walker is a function that returns when Python has work to do, and resumes where it stopped. All that it must
remember is in this state. So it handles a chunk boundary, a full buffer and an event for Python in the same way.
"""

from millrace.producer.binlog import gtid_events

(
    POS,  # offset in the span of the next event
    FILE_POS,  # file offset of the span's first byte
    FIXED_POS,  # coordinates of all rows while inside a payload event, -1 outside
    CHECKSUM_BYTES,  # 4 (after each event) or 0
    FLAVOUR,  # MYSQL or MARIADB
    GROUP,  # OUTSIDE, AFTER_GTID, INSIDE of producer.binlog.transactions
    STEP,  # effect of the event for Python on the source transaction (producer.binlog.transactions)
    IS_COVERED,  # 1: the transaction is done, its events are skipped
    TRANSACTIONS,  # source transactions begun; stamps table maps
    ROWS,  # rows and statements of the open transaction so far, before any filter
    ROWS_TO_SKIP,  # how many of them are done already
    SEQ,  # of the last record written
    OUT_AT,  # bytes written
    RECORDS,  # records written
    LAST_UNIT,  # the record to patch at commit, -1: none of this transaction in this buffer
    OPEN_RECORDS,  # RECORDS, OUT_AT, SEQ where the open transaction began
    OPEN_OUT_AT,
    OPEN_SEQ,
    RECORDS_MAX,  # soft bounds, compared after each transaction
    BYTES_MAX,
    ROW_POS,  # inside a rows event that did not fit: offset in the event, row number; else 0
    ROW_INDEX,
    NEED_BYTES,  # with OUT_FULL and SCRATCH_FULL: the room needed, as far as known
    ERROR_CODE,  # with ERROR: the error (below)
    ERROR_DETAIL,
    SID,  # MySQL: index of the uuid; MariaDB: index of the domain
    COMMIT_MS,
    GTID_SIZE,  # the id, encoded: the end of the transaction's head
    TRANSACTION_HEAD_SIZE,  # ts_ms and id, encoded, in `heads`
    FILE_SIZE,  # source.file, encoded, in `heads`
    SID_COUNT,
    INTERVAL_COUNT,
    INTERVAL_HINT,
    ROWS_WRITTEN,
    TRANSACTIONS_DONE,
    EVENT_TIME_S,
    EVENT_SIZE,
    EVENT_TYPE,
    EXPECTED_SIZE,  # text of the GTID that must be open, in `expected`; 0: none
    EXPECTED_ROWS,  # how many of its rows are done
    LAST_UNIT_ROWS,  # ROWS before LAST_UNIT
    IS_XA,  # 1: a prepared XA group, skipped until its XA COMMIT; 2: a prepared XA group that is done
    GROUP_POS,  # file offset after the GTID event (XA: after XA START)
    STATEMENTS,  # how many of ROWS are statements
    GTID,  # of the open transaction: the words of producer.binlog.gtid_events, from here on
) = range(45)
NUMBER = GTID + gtid_events.NUMBER
DOMAIN = GTID + gtid_events.SOURCE_LOW  # MariaDB
SERVER = GTID + gtid_events.SOURCE_HIGH  # MariaDB
ALTER_PHASE = GTID + gtid_events.ALTER_PHASE
STATE_SIZE = GTID + gtid_events.GTID_WORDS

MYSQL, MARIADB = 0, 1

# ---- statuses
(
    NEED_EVENTS,  # every whole event of the span is done
    OUT_FULL,
    BATCH_FULL,  # after a transaction, with the soft bounds reached
    TABLE_MAP_UNSEEN,
    EVENT_FOR_PYTHON,  # QUERY, FORMAT_DESCRIPTION, PAYLOAD, XA_PREPARE, compressed QUERY …
    POSITION_FULL,  # no room for another interval, uuid or domain
    SCRATCH_FULL,
    IMAGES_UNSEEN,  # a rows event without some columns: ERROR_DETAIL is the table's row
    ERROR,
) = range(9)

# ---- errors
(
    TRUNCATED,  # a length reaches beyond its event
    TYPE_UNKNOWN,
    TYPE_REFUSED,
    ANONYMOUS,
    OUT_OF_GROUP,  # rows or a commit outside a transaction
    GROUP_UNFINISHED,  # a GTID inside a transaction
    TABLE_UNMAPPED,
    VALUE_BROKEN,
    COLUMNS_DIFFER,
    NOT_EXPECTED,  # the transaction to resume is not the next one
    BACKWARDS,  # MariaDB: a sequence number that goes backwards
    ENCRYPTED,
    COMPRESSED_BROKEN,
    GTID_BROKEN,
    OTHER_HISTORY,  # MariaDB: another server's transaction has the number of the last one that is done
    FLAGS_UNKNOWN,  # of a rows event
) = range(16)

# ---- places in the small byte arrays
SID_STRIDE = 128  # uuid 16 | tag 32, zero-padded | 8 free | text length 1 | text "uuid:tag:"
SID_TAG, SID_TEXT = 16, 56
SIDS_AT_FIRST = 64
GTID_BYTES_MAX = 128
HEAD_TRANSACTION, HEAD_FILE, HEAD_EVENT = 0, 192, 1024
HEADS_SIZE = 8192

INTERVAL_WIDTH = 5
# MySQL: SID, first, last + 1, 1: changed, -      MariaDB: domain, server, sequence, 1: changed, last seen in this
# sub-directory
I_SID, I_FIRST, I_END, I_CHANGED, I_SEEN = range(5)
I_DOMAIN, I_SERVER, I_SEQUENCE = 0, 1, 2
