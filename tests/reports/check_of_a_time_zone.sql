-- report: found by attack (a CHECK over a TIMESTAMP refuses a row that the source took); right: the row, or a stop with a code; flavour: mysql; stops: MR-5011
CREATE DATABASE check_of_a_time_zone CHARACTER SET utf8mb4;
USE check_of_a_time_zone;
CREATE TABLE t (id INT PRIMARY KEY, ts TIMESTAMP NULL, CHECK (HOUR(ts) < 12));
SET time_zone = '+09:00';
INSERT INTO t VALUES (1, '2024-01-01 00:30:00');
