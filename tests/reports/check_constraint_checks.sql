-- report: MariaDB check_constraint_checks (session; in the flags of query and row events, see mariadb-binlog's SET @@session.check_constraint_checks), bugs.mysql.com 120206 and MDEV-33127 (rows that break a CHECK); right: rows that the source allowed with the checks off arrive on the target (a native replica takes them); flavour: mariadb
CREATE DATABASE check_constraint_checks;
USE check_constraint_checks;
CREATE TABLE t (id INT PRIMARY KEY, a INT CHECK (a > 0), b INT, CONSTRAINT ab CHECK (a < b));
INSERT INTO t VALUES (1, 1, 2);
SET SESSION check_constraint_checks = OFF;
INSERT INTO t VALUES (2, -1, -5), (3, 10, 1);
UPDATE t SET b = 0 WHERE id = 1;
ALTER TABLE t ADD COLUMN c INT DEFAULT -7 CHECK (c > 0);
CREATE TABLE j (id INT PRIMARY KEY, d JSON);
INSERT INTO j VALUES (1, 'not json'), (2, '{}');
SET SESSION check_constraint_checks = ON;
UPDATE t SET a = 5, b = 6, c = 1 WHERE id = 2;
DELETE FROM t WHERE id = 3;
UPDATE j SET id = id + 10 WHERE id = 2;
DELETE FROM j WHERE id = 1;
SELECT * FROM t ORDER BY id;
