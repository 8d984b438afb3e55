-- report: debezium DBZ-977, zendesk/maxwell#1080 (binlog_format is set in a session); right: a stop with a code before rows differ; flavour: both; stops: MR-6501
CREATE DATABASE statement_format CHARACTER SET utf8mb4;
USE statement_format;
CREATE TABLE t (id INT PRIMARY KEY, a INT);
INSERT INTO t VALUES (1, 1);
SET SESSION binlog_format = 'STATEMENT';
UPDATE t SET a = a + 1;
