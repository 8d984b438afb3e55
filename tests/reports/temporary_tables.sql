-- report: debezium DBZ-1044, MDEV-8441 (temporary tables beside permanent ones with their names); right: only permanent tables are on the target, with their rows; flavour: both
CREATE DATABASE temporary_tables CHARACTER SET utf8mb4;
USE temporary_tables;
CREATE TABLE t (id INT PRIMARY KEY, v INT);
INSERT INTO t VALUES (1, 1);
CREATE TEMPORARY TABLE t (x INT);
INSERT INTO t VALUES (5), (6);
CREATE TABLE copied SELECT * FROM t;
ALTER TABLE t ADD COLUMN y INT;
DROP TEMPORARY TABLE t;
INSERT INTO t VALUES (2, 2);
CREATE TEMPORARY TABLE tmp LIKE t;
INSERT INTO tmp SELECT * FROM t;
INSERT INTO t SELECT id + 10, v FROM tmp;
CREATE TABLE both_kinds (n INT);
DROP TABLE tmp, both_kinds;
CREATE TEMPORARY TABLE only_here (a INT);
TRUNCATE TABLE only_here;
UPDATE copied SET x = x + 1;
