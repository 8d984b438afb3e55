-- report: found by attack (a STORED column has the name of a month in the applier's language); right: the source's value, or a stop with a code; flavour: mysql; stops: MR-5017
CREATE DATABASE stored_name_of_a_month CHARACTER SET utf8mb4;
USE stored_name_of_a_month;
CREATE TABLE t1 (id INT PRIMARY KEY, d DATE, n VARCHAR(20) AS (MONTHNAME(d)) STORED);
SET lc_time_names = 'de_DE';
INSERT INTO t1 (id, d) VALUES (1, '2024-03-05');
