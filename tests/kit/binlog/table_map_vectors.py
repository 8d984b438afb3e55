"""TABLE_MAP bodies as servers wrote them (without event header and checksum), byte by byte.

MySQL 9.7.4 and MariaDB 11.4.5 with binlog_row_metadata=FULL; the CREATE TABLE is beside each.
"""

from millrace.schemas.gtid import Flavour

# CREATE TABLE tnum (a TINYINT UNSIGNED, y YEAR, b SMALLINT UNSIGNED, f FLOAT UNSIGNED, c MEDIUMINT, bb BIT(3),
#   d INT UNSIGNED, e BIGINT, g DOUBLE, h DECIMAL(10,2) UNSIGNED, i BIGINT UNSIGNED, dt DATE, PRIMARY KEY (d, a))
_NUMBERS = bytes.fromhex(
    "01 74 00"  # database "t"
    "04 746e756d 00"  # table "tnum"
    "0c"  # 12 columns
    "01 0d 02 04 09 10 03 08 05 f6 08 0a"  # TINY YEAR SHORT FLOAT INT24 BIT LONG LONGLONG DOUBLE DECIMAL …
    "06 04 0300 08 0a02"  # metadata: FLOAT 4; BIT 3 bits, 0 bytes; DOUBLE 8; DECIMAL 10,2
    "be0f"  # may be NULL: all but the columns 0 and 6
    "01 02 f4c0"  # signedness: 1111 0100 11 for a y b f c d e g h i (YEAR counts, BIT doesn't)
    "04 1a 0161 0179 0162 0166 0163 026262 0164 0165 0167 0168 0169 026474"
    "08 02 0600"  # primary key: columns 6, 0
)
MYSQL_NUMBERS = (
    bytes.fromhex("6a0000000000 0100") + _NUMBERS + bytes.fromhex("0c 02 fff0")
)  # all visible
MARIADB_NUMBERS = bytes.fromhex("080000000000 0100") + _NUMBERS

# CREATE TABLE ttxt (a CHAR(10) CHARSET latin1, b VARCHAR(40) CHARSET utf8mb4, c TEXT, d BLOB, e BINARY(5),
#   f VARBINARY(300), g JSON, h GEOMETRY NOT NULL SRID 4326, hp POINT, v VECTOR(5), j ENUM('x','y,z') CHARSET latin1,
#   k SET('p','q') COLLATE utf8mb4_bin, l LONGTEXT CHARSET gbk, tb TINYTEXT, m VARCHAR(10) INVISIBLE,
#   PRIMARY KEY (b(3), a)) CHARSET utf8mb4
MYSQL_TEXTS = bytes.fromhex(
    "6d0000000000 0100"
    "01 74 00"
    "04 74747874 00"
    "0f"
    "fe 0f fc fc fe 0f f5 ff ff f2 fe fe fc fc 0f"
    "16"  # metadata
    "fe0a a000 02 02 fe05 2c01 04 04 04 04 f701 f801 04 01 2800"
    "7c7f"
    "03 12"  # collations one by one, 8 ff 2-byte 255: a b c d e f, v (VECTOR counts, GEOMETRY and JSON don't), l tb m
    "08 fcff00 fcff00 3f 3f 3f 3f 1c fcff00 fcff00"
    "07 02 00 01"  # geometry, point
    "0d 01 05"  # five dimensions
    "04 20 0161 0162 0163 0164 0165 0166 0167 0168 026870 0176 016a 016b 016c 027462 016d"
    "0b 02 08 2e"  # j latin1, k utf8mb4_bin
    "05 05 02 0170 0171"
    "06 07 02 0178 03792c7a"
    "09 04 01 03 00 00"  # primary key: column 1, 3 characters; column 0
    "0c 02 fffc"  # the last is invisible
)

# The same but for: g JSON is a LONGTEXT, u UUID, i6 INET6, i4 INET4 instead of v; no SRID
MARIADB_TEXTS = bytes.fromhex(
    "0c0000000000 0100"
    "01 74 00"
    "04 74747874 00"
    "11"
    "fe 0f fc fc fe 0f fc ff ff fe fe fe fe fe fc fc 0f"
    "1b"
    "fe0a a000 02 02 fe05 2c01 04 04 04 fe10 fe10 fe04 f701 f801 04 01 2800"
    "7cff01"
    "02 0f"  # collation 63, other ones by index: a, b, c, g, l, tb, m (GEOMETRY counts: u is 9)
    "3f 0008 012d 022d 062e 0c1c 0d2d 0e2d"
    "07 02 00 01"
    "04 26 0161 0162 0163 0164 0165 0166 0167 0168 026870 0175 026936 026934 016a 016b 016c 027462 016d"
    "0b 02 08 2e"
    "05 05 02 0170 0171"
    "06 07 02 0178 03792c7a"
    "09 04 01 03 00 00"
)

# CREATE TABLE tcomp (a VARCHAR(40) COMPRESSED CHARSET latin1, b TEXT COMPRESSED, c BLOB COMPRESSED,
#   d VARBINARY(300) COMPRESSED, e VARCHAR(1000) COMPRESSED, f LONGTEXT COMPRESSED, n INT UNSIGNED)
MARIADB_COMPRESSED = bytes.fromhex(
    "0d0000000000 0100"
    "01 74 00"
    "05 74636f6d70 00"
    "07"
    "8d 8c 8c 8d 8d 8c 03"  # VARCHAR_COMPRESSED 141, BLOB_COMPRESSED 140
    "09 2900 02 02 2d01 a10f 04"  # lengths with the method byte: 41, 301, 4001
    "7f"
    "01 01 80"
    "03 06 08 2d 3f 3f 2d 2d"
    "04 0e 0161 0162 0163 0164 0165 0166 016e"
)

# CREATE TABLE tcs (a CHAR(3), b CHAR(3), c CHAR(3) COLLATE utf8mb4_zh_0900_as_cs, d VARBINARY(3),
#   e ENUM('a','b') CHARSET ucs2, e2 ENUM('a') CHARSET binary, s SET('a','b','é'))
MYSQL_CHARSETS = bytes.fromhex(
    "6f0000000000 0100"
    "01 74 00"
    "03 746373 00"
    "07 fe fe fe 0f fe fe fe"
    "0e fe0c fe0c fe0c 0300 f701 f701 f801"
    "7f"
    "03 0a fcff00 fcff00 fc3401 3f"  # 255, 255, 308, 63
    "04 0f 0161 0162 0163 0164 0165 026532 0173"
    "0b 05 23 3f fcff00"  # ucs2, binary, utf8mb4
    "05 08 03 0161 0162 02c3a9"
    "06 0a 02 020061 020062 01 0161"  # labels in the column's own charset
    "0c 01 fe"
)

# CREATE TABLE tlong (a INT, b TEXT, UNIQUE (b), UNIQUE (b, a)): a hidden hash column for each key
MARIADB_LONG_UNIQUE = bytes.fromhex(
    "120000000000 0100"
    "01 74 00"
    "05 746c6f6e67 00"
    "04 03 fc 08 08"
    "01 02"
    "0f"
    "01 01 60"  # both unsigned
    "02 01 2d"
    "04 20 0161 0162 0d 44425f524f575f484153485f31 0d 44425f524f575f484153485f32"
)

LOGGED = (  # each by a server of its flavour
    (Flavour.MYSQL, MYSQL_NUMBERS),
    (Flavour.MYSQL, MYSQL_TEXTS),
    (Flavour.MYSQL, MYSQL_CHARSETS),
    (Flavour.MARIADB, MARIADB_NUMBERS),
    (Flavour.MARIADB, MARIADB_TEXTS),
    (Flavour.MARIADB, MARIADB_COMPRESSED),
    (Flavour.MARIADB, MARIADB_LONG_UNIQUE),
)
