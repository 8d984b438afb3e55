-- report: found by attack (two rows with different days in the source's time zone have the same day in UTC); right: both rows, or a stop with a code; flavour: mysql; stops: MR-5010
CREATE DATABASE unique_key_of_a_time_zone CHARACTER SET utf8mb4;
USE unique_key_of_a_time_zone;
CREATE TABLE t (id INT PRIMARY KEY, ts TIMESTAMP NULL, d DATE AS (DATE(ts)) VIRTUAL, UNIQUE KEY (d));
SET time_zone = '+09:00';
INSERT INTO t (id, ts) VALUES (1, '2024-01-01 00:30:00'), (2, '2023-12-31 10:00:00');
