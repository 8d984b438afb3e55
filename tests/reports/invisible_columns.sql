-- report: vitessio/vitess#9783, debezium DBZ-5181 (rows have more columns than SELECT * shows); right: values of invisible columns arrive, and none shifts; flavour: both
CREATE DATABASE invisible_columns CHARACTER SET utf8mb4;
USE invisible_columns;
CREATE TABLE t (id INT PRIMARY KEY, h INT DEFAULT 7 INVISIBLE, v VARCHAR(9));
INSERT INTO t VALUES (1, 'a');
INSERT INTO t (id, h, v) VALUES (2, 8, 'b');
UPDATE t SET h = h + 1;
ALTER TABLE t ADD COLUMN i INT NOT NULL DEFAULT 3 INVISIBLE FIRST, MODIFY v VARCHAR(9) INVISIBLE;
INSERT INTO t VALUES (3);
UPDATE t SET v = 'c', i = 4 WHERE id = 3;
ALTER TABLE t MODIFY h INT DEFAULT 9;
INSERT INTO t (id) VALUES (4);
DELETE FROM t WHERE h = 8;
CREATE TABLE keyless (a INT INVISIBLE, b INT);
INSERT INTO keyless (a, b) VALUES (1, 1), (2, 1);
INSERT INTO keyless VALUES (1);
DELETE FROM keyless WHERE a = 2;
UPDATE keyless SET a = 3 WHERE a IS NULL;
