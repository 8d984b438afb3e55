-- report: pingcap/ticdc#4184 (rows of a table whose only key is a virtual column are not found); right: every row is changed and deleted; flavour: both
CREATE DATABASE virtual_not_null_unique_key CHARACTER SET utf8mb4;
USE virtual_not_null_unique_key;
CREATE TABLE t (a INT, b INT AS (a + 1) VIRTUAL, c INT NOT NULL, UNIQUE KEY (b));
INSERT INTO t (a, c) VALUES (1, 2), (2, 3), (3, 4), (4, 5), (5, 6), (6, 7), (NULL, 8), (NULL, 8);
UPDATE t SET a = 10 WHERE a = 1;
UPDATE t SET a = 11 WHERE b = 3;
DELETE FROM t WHERE b = 4;
DELETE FROM t WHERE a = 4;
UPDATE t SET c = c + 1;
DELETE FROM t WHERE a IS NULL LIMIT 1;
CREATE TABLE s (d DATE, w VARCHAR(20) AS (CONCAT('w', YEAR(d), '-', MONTH(d))) STORED, n INT, UNIQUE KEY (w));
INSERT INTO s (d, n) VALUES ('2024-01-01', 1), ('2024-02-01', 2), (NULL, 3);
UPDATE s SET d = d + INTERVAL 1 YEAR;
DELETE FROM s WHERE n = 2;
