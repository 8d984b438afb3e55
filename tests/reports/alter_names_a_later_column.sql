-- report: zendesk/maxwell#1216, #1303 and #1442 (an ALTER that names columns before they exist, or with the table's name); right: the same order of columns and the same rows; flavour: both
CREATE DATABASE alter_names_a_later_column CHARACTER SET utf8mb4;
USE alter_names_a_later_column;
CREATE TABLE t (i INT, a INT, b VARCHAR(255), c INT);
INSERT INTO t VALUES (1, 2, 'three', 4);
ALTER TABLE t ADD COLUMN n INT DEFAULT 5 AFTER j, CHANGE COLUMN i j INT;
ALTER TABLE t CHANGE COLUMN a a INT AFTER b2, CHANGE COLUMN b b2 VARCHAR(255);
UPDATE t SET j = 10;
ALTER TABLE alter_names_a_later_column.t MODIFY COLUMN b2 VARCHAR(500) FIRST;
ALTER TABLE t DROP c, ALTER COLUMN n SET DEFAULT 9, ADD (x INT DEFAULT 1, y INT DEFAULT 2);
INSERT INTO t (j) VALUES (2);
ALTER TABLE t ADD INDEX (j), ADD UNIQUE u (n, j), DROP x;
ALTER TABLE t RENAME INDEX j TO jj, RENAME COLUMN j TO jjj, ADD COLUMN z INT AFTER jjj;
UPDATE t SET y = 3 WHERE jjj = 2;
DELETE FROM t WHERE jjj = 10;
