-- report: alibaba/canal#5275 (BINARY in a key, with trailing zeros, that becomes VARBINARY; columns renamed in turn); right: every row is found under its new names; flavour: both
CREATE DATABASE binary_key_becomes_varbinary CHARACTER SET utf8mb4;
USE binary_key_becomes_varbinary;
CREATE TABLE t (x1 BINARY(10), x2 DATETIME, x3 BOOL, y VARCHAR(100), PRIMARY KEY (x1, x2, x3));
INSERT INTO t VALUES (x'123F', '2024-01-01', 101, 'a'), (x'123F00', '2024-01-02', 102, 'b'), ('', '2024-01-03', 0, 'c');
UPDATE t SET x2 = x2 + INTERVAL 1 DAY;
ALTER TABLE t MODIFY x1 VARBINARY(34) NOT NULL COMMENT 'not null';
INSERT INTO t VALUES (x'123F', '2024-01-01', 103, 'd'), (x'123F00', '2024-01-09', 103, 'e');
ALTER TABLE t RENAME COLUMN x1 TO x2, RENAME COLUMN x2 TO x1;
UPDATE t SET y = UPPER(y);
ALTER TABLE t RENAME COLUMN x2 TO `x 2`, RENAME COLUMN y TO `y``z`;
DELETE FROM t WHERE x3 = 102;
UPDATE t SET `x 2` = CONCAT(`x 2`, x'00') WHERE x3 = 103;
