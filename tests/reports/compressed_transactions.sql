-- report: debezium DBZ-2663, go-mysql#636 (binlog_transaction_compression is set in a session); right: rows of compressed and plain transactions in their order; flavour: mysql
CREATE DATABASE compressed_transactions CHARACTER SET utf8mb4;
USE compressed_transactions;
CREATE TABLE t (id INT PRIMARY KEY, v TEXT);
SET SESSION binlog_transaction_compression = ON;
INSERT INTO t VALUES (1, REPEAT('a', 20000)), (2, 'b');
BEGIN;
UPDATE t SET v = REPEAT('c', 30000) WHERE id = 2;
INSERT INTO t VALUES (3, '');
COMMIT;
ALTER TABLE t ADD COLUMN n INT DEFAULT 1;
UPDATE t SET n = id;
SET SESSION binlog_transaction_compression = OFF;
DELETE FROM t WHERE id = 1;
SET SESSION binlog_transaction_compression = ON, binlog_transaction_compression_level_zstd = 22;
UPDATE t SET v = CONCAT(v, 'd');
