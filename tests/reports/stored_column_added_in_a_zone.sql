-- report: found by attack (an update recomputes a STORED column that ALTER TABLE added in another time zone); right: the source's value, or a stop with a code; flavour: both; stops: MR-5017
CREATE DATABASE stored_column_added_in_a_zone CHARACTER SET utf8mb4;
USE stored_column_added_in_a_zone;
CREATE TABLE t (id INT PRIMARY KEY, ts TIMESTAMP NULL, a INT);
SET time_zone = '+09:00';
INSERT INTO t VALUES (1, '2024-01-01 00:30:00', 1), (2, '2024-01-01 12:30:00', 1);
ALTER TABLE t ADD d DATE AS (DATE(ts)) STORED;
UPDATE t SET a = 2;
UPDATE t SET ts = '2024-02-01 00:10:00' WHERE id = 2;
