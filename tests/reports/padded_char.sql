-- report: vitessio/vitess#8743 and #9207 (CHAR with a binary collation and BINARY get other padding); right: the same bytes, and every row is found; flavour: both
CREATE DATABASE padded_char CHARACTER SET utf8mb4;
USE padded_char;
CREATE TABLE t (b VARCHAR(64) COLLATE utf8mb4_bin NOT NULL DEFAULT '', l CHAR(5) COLLATE utf8mb4_bin, k CHAR(3) CHARACTER SET latin1 COLLATE latin1_bin NOT NULL, n BINARY(4) NOT NULL, v VARBINARY(4), PRIMARY KEY (b, k, n));
INSERT INTO t VALUES ('', 'ja', 'ä', x'00', x'00'), ('a', 'ja   ', 'a', x'2000', ''), ('a ', NULL, '', 'ab', x'200000'), ('b', '日本語です', 'abc', '', NULL);
UPDATE t SET l = CONCAT(l, '\t') WHERE l = 'ja';
UPDATE t SET n = CONCAT(LEFT(n, 1), x'00FF');
SET SESSION sql_mode = 'PAD_CHAR_TO_FULL_LENGTH';
INSERT INTO t VALUES ('c', 'x', 'y', 'z', 'z');
UPDATE t SET l = CONCAT(l) WHERE b = 'c';
DELETE FROM t WHERE k = '';
SET SESSION sql_mode = DEFAULT;
CREATE TABLE keyless (l CHAR(5) COLLATE utf8mb4_bin, n BINARY(3));
INSERT INTO keyless VALUES ('a', 'a'), ('a ', x'6100'), ('', ''), (NULL, NULL);
UPDATE keyless SET l = 'b' WHERE n = x'610000' LIMIT 1;
DELETE FROM keyless WHERE l = '';
