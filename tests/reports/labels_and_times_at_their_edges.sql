-- report: debezium DBZ-197, DBZ-114, DBZ-7594 (invalid ENUM values, zero dates, negative times); right: exact values, and rows without a key are found by them; flavour: both
CREATE DATABASE labels_and_times_at_their_edges CHARACTER SET utf8mb4;
USE labels_and_times_at_their_edges;
SET SESSION sql_mode = '';
CREATE TABLE t (id INT PRIMARY KEY, e ENUM('a', 'b', '', '1') NOT NULL, s SET('x', 'y', 'z'), d DATE, t TIME(6), dt DATETIME(6), ts TIMESTAMP NULL, y YEAR);
INSERT INTO t VALUES (1, 'wrong', 'x,wrong', '0000-00-00', '-00:00:00.000001', '0000-00-00', 0, 0), (2, '', '', '2024-02-31', '-838:59:59', '2024-00-00 00:00:01', NULL, 1901), (3, 4, 7, '0001-01-01', '838:59:59', '9999-12-31 23:59:59.999999', '2038-01-19 03:14:07', 2155), (4, '1', NULL, NULL, '00:00:00', NULL, '1970-01-01 00:00:01', NULL);
UPDATE t SET t = -t WHERE id > 1;
UPDATE t SET e = 'b' WHERE e = 0;
ALTER TABLE t MODIFY e ENUM('b', 'a', '1', '') NOT NULL DEFAULT 'a', MODIFY s SET('z', 'y', 'x', 'w');
UPDATE t SET id = id + 10 WHERE e = '';
CREATE TABLE keyless (e ENUM('a', 'b'), d DATE, t TIME(3), n INT);
INSERT INTO keyless VALUES ('bad', '0000-00-00', '-00:00:01', 1), ('', '2024-00-10', '00:00:01', 2), (NULL, NULL, NULL, 3), ('a', '0000-00-00', '-00:00:01', 4);
UPDATE keyless SET n = n + 10;
DELETE FROM keyless WHERE n = 11;
