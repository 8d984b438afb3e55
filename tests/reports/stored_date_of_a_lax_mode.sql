-- report: found by attack (a STORED column has a date that the source's sql_mode made NULL); right: the source's value, or a stop with a code; flavour: mysql; stops: MR-5017
CREATE DATABASE stored_date_of_a_lax_mode CHARACTER SET utf8mb4;
USE stored_date_of_a_lax_mode;
CREATE TABLE t6 (id INT PRIMARY KEY, s VARCHAR(30), dt DATETIME AS (CAST(s AS DATETIME)) STORED);
SET sql_mode = '';
INSERT INTO t6 (id, s) VALUES (4, '2024-02-30 10:00:00');
