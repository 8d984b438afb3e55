-- report: PeerDB-io/peerdb#4538 (binlog_row_value_options is set in a session, and updates are lost); right: a stop with a code before rows differ; flavour: mysql; stops: MR-6505
CREATE DATABASE partial_json CHARACTER SET utf8mb4;
USE partial_json;
CREATE TABLE t (id INT PRIMARY KEY, j JSON);
INSERT INTO t VALUES (1, '{"a": "0123456789012345678901234567890123456789", "b": 1}');
SET SESSION binlog_row_value_options = 'PARTIAL_JSON';
UPDATE t SET j = JSON_SET(j, '$.b', 2);
