-- report: vitessio/vitess#6622 and #15338 (VARCHAR keys under collations: rows are missed); right: keys equal under the collation name one row, and updates of their letters arrive; flavour: both
CREATE DATABASE keys_of_collations CHARACTER SET utf8mb4;
USE keys_of_collations;
CREATE TABLE t (k VARCHAR(20) CHARACTER SET utf8mb4 COLLATE utf8mb4_unicode_ci PRIMARY KEY, n INT);
INSERT INTO t VALUES ('Straße', 1), ('é', 2), ('a', 3), ('ﬀ', 4), ('😀', 5), ('I', 6);
UPDATE t SET k = 'STRASSE' WHERE n = 1;
UPDATE t SET k = 'E' WHERE n = 2;
UPDATE t SET k = 'A ' WHERE n = 3;
UPDATE t SET n = n + 10 WHERE k = 'ff';
REPLACE INTO t VALUES ('i', 60);
INSERT INTO t VALUES ('e', 7) ON DUPLICATE KEY UPDATE k = 'è', n = n + 100;
ALTER TABLE t MODIFY k VARCHAR(20) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL;
INSERT INTO t VALUES ('strasse', 8), ('E', 9);
UPDATE t SET n = -n;
DELETE FROM t WHERE k IN ('A ', 'E');
CREATE TABLE g (k VARCHAR(9) CHARACTER SET gbk PRIMARY KEY, b VARCHAR(9) CHARACTER SET big5, j VARCHAR(9) CHARACTER SET sjis, UNIQUE KEY (b), KEY (j));
INSERT INTO g VALUES ('中', '功', 'ソ'), ('文', '許', '表');
UPDATE g SET j = CONCAT(j, '能') WHERE b = '許';
DELETE FROM g WHERE k = '中';
