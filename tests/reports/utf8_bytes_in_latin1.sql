-- report: github/gh-ost#1157 and #1568 (bytes of a client with another character set in a latin1 column); right: the same bytes on both sides, and the same after a conversion; flavour: both
CREATE DATABASE utf8_bytes_in_latin1 CHARACTER SET utf8mb4;
USE utf8_bytes_in_latin1;
CREATE TABLE t (id INT PRIMARY KEY, l VARCHAR(30) CHARACTER SET latin1, KEY (l)) CHARACTER SET latin1;
SET NAMES latin1;
INSERT INTO t VALUES (1, '威'), (2, 'é'), (3, x'80818D8F909DFF'), (4, x'A0');
SET NAMES utf8mb4;
INSERT INTO t VALUES (5, 'é€'), (6, 'ä ');
UPDATE t SET id = id + 10 WHERE l = 'é€';
UPDATE t SET l = CONCAT(l, x'81') WHERE id = 1;
ALTER TABLE t MODIFY l VARBINARY(60);
UPDATE t SET id = id + 100 WHERE id < 4;
DELETE FROM t WHERE id IN (1, 3, 101, 103);
ALTER TABLE t MODIFY l VARCHAR(60) CHARACTER SET cp1250;
ALTER TABLE t CONVERT TO CHARACTER SET utf8mb4;
UPDATE t SET l = CONCAT(l, '😀') WHERE id = 2 OR id = 102;
