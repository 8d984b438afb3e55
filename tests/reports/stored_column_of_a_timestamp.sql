-- report: found by attack (a STORED column over a TIMESTAMP has the value of the applier's time zone); right: the source's value, or a stop with a code; flavour: both; stops: MR-5017
CREATE DATABASE stored_column_of_a_timestamp CHARACTER SET utf8mb4;
USE stored_column_of_a_timestamp;
CREATE TABLE t (id INT PRIMARY KEY, ts TIMESTAMP NULL, h INT AS (HOUR(ts)) STORED, d DATE AS (DATE(ts)) STORED, KEY (h));
SET time_zone = '+09:00';
INSERT INTO t (id, ts) VALUES (1, '2024-01-01 00:30:00');
UPDATE t SET ts = '2024-05-05 01:00:00' WHERE id = 1;
