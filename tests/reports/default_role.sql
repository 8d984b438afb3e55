-- report: found by trying odd statements; right: the row; flavour: mariadb
CREATE DATABASE f09; USE f09;
CREATE TABLE t (id INT PRIMARY KEY);
CREATE ROLE r9; GRANT r9 TO root@localhost; SET DEFAULT ROLE r9; SET DEFAULT ROLE NONE; DROP ROLE r9;
INSERT INTO t VALUES (1);
