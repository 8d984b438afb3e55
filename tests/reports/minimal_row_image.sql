-- report: debezium DBZ-1176, alibaba/canal#2089 (binlog_row_image is set in a session); right: a stop with a code before rows differ; flavour: both; stops: MR-6504
CREATE DATABASE minimal_row_image CHARACTER SET utf8mb4;
USE minimal_row_image;
CREATE TABLE t (id INT PRIMARY KEY, a INT, b BLOB);
INSERT INTO t VALUES (1, 1, 'x');
SET SESSION binlog_row_image = 'MINIMAL';
UPDATE t SET a = 2;
