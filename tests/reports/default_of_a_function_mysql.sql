-- report: bugs.mysql.com 95014 and WL#127 (an added column whose DEFAULT is not the same everywhere); right: the source's values; flavour: mysql
CREATE DATABASE default_of_a_function_mysql CHARACTER SET utf8mb4;
USE default_of_a_function_mysql;
CREATE TABLE t (id INT PRIMARY KEY, u VARCHAR(36) NOT NULL DEFAULT (UUID()), b BINARY(16) DEFAULT (UUID_TO_BIN(UUID())));
INSERT INTO t (id) VALUES (1), (2);
ALTER TABLE t ALTER COLUMN u SET DEFAULT (CONCAT('x', RAND()));
INSERT INTO t (id) VALUES (3);
CREATE TABLE c (id INT PRIMARY KEY, v INT DEFAULT (id + 1));
INSERT INTO c (id) VALUES (1), (2);
ALTER TABLE c ADD COLUMN w JSON NOT NULL DEFAULT (JSON_ARRAY(1, 2.50, 'x')), ADD COLUMN z DATE DEFAULT (CURRENT_DATE + INTERVAL 1 YEAR);
UPDATE c SET v = v * 2;
