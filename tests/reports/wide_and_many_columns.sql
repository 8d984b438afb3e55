-- report: debezium DBZ-1492, go-mysql#417 (ENUM with more than 255 labels, SET with 64, long rows); right: exact values; flavour: both
CREATE DATABASE wide_and_many_columns CHARACTER SET utf8mb4;
USE wide_and_many_columns;
SET SESSION group_concat_max_len = 1000000;
CREATE TABLE d (n INT PRIMARY KEY);
INSERT INTO d VALUES (0), (1), (2), (3), (4), (5), (6), (7), (8), (9);
SELECT GROUP_CONCAT('\'l', a.n, b.n, c.n, '\'' ORDER BY a.n, b.n, c.n) INTO @e FROM d a, d b, d c WHERE a.n < 3;
SELECT GROUP_CONCAT('\'s', a.n, b.n, '\'' ORDER BY a.n, b.n) INTO @s FROM d a, d b WHERE a.n * 10 + b.n < 64;
SET @q = CONCAT('CREATE TABLE t (id INT PRIMARY KEY, e ENUM(', @e, ') , s SET(', @s, '), l LONGTEXT, v VARCHAR(16000))');
PREPARE p FROM @q;
EXECUTE p;
INSERT INTO t VALUES (1, 'l000', 's00', REPEAT('é', 300000), REPEAT('x', 16000)), (2, 'l299', 's63', '', ''), (3, 'l255', 's00,s63,s31', NULL, NULL), (4, 256, 18446744073709551615, 'x', 'y');
UPDATE t SET e = e + 1 WHERE id IN (1, 3);
UPDATE t SET l = CONCAT(l, 'z'), s = s | 2 WHERE id < 3;
DELETE FROM t WHERE s = 's00,s63,s31';
