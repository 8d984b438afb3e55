"""Numbers of the binlog format that the relay needs: event types, flags, lengths. Both flavours' words kept.

The header in front of every event (v4, 19 bytes, little-endian; MySQL ``Log_event_header``):

    offset  size  field
         0     4  timestamp_s  0 on artificial events
         4     1  type
         5     4  server_id
         9     4  event_size   header and trailing checksum included
        13     4  next_pos     file offset of the following event, modulo 2^32; 0 on artificial events and, since
                               MariaDB 11.4, on those inside a transaction (its GTID and its end have theirs)
        17     2  flags

After the body come 4 bytes of CRC-32 over header and body (``binlog_checksum=CRC32``).
"""

MAGIC = b"\xfebin"
MAGIC_BYTES = 4
HEADER_BYTES = 19
CHECKSUM_BYTES = 4
EVENT_BYTES_MIN = HEADER_BYTES + CHECKSUM_BYTES

ARTIFICIAL_FLAG = 0x20
IN_USE_FLAG = 0x1
CHECKSUM_ALGORITHM_CRC32 = 1

QUERY = 2
STOP = 3
ROTATE = 4
FORMAT_DESCRIPTION = 15
XID = 16
EXECUTE_LOAD_QUERY = 18
TABLE_MAP = 19
INCIDENT = 26
HEARTBEAT = 27
WRITE_ROWS = 30
UPDATE_ROWS = 31
DELETE_ROWS = 32
GTID = 33
ANONYMOUS_GTID = 34
PREVIOUS_GTIDS = 35
XA_PREPARE = 38
TRANSACTION_PAYLOAD = 40
HEARTBEAT_V2 = 41
GTID_TAGGED = 42

MARIADB_ANNOTATE_ROWS = 160
MARIADB_BINLOG_CHECKPOINT = 161
MARIADB_GTID = 162
MARIADB_GTID_LIST = 163
MARIADB_START_ENCRYPTION = 164
MARIADB_QUERY_COMPRESSED = 165
