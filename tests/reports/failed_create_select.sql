-- report: MDEV-35207, MDEV-35499, MDEV-35502 (failing CREATE TABLE … SELECT and its binlog) (MariaDB logs the failed statements with an error code, a DROP inside a transaction that ends with ROLLBACK, and DROP TABLE with a missing table); right: after the failed statements the target has exactly the tables that the source still has; flavour: mariadb
CREATE DATABASE failed_create_select;
USE failed_create_select;
CREATE TABLE dup (a INT);
INSERT INTO dup VALUES (1), (1);
CREATE TABLE old1 (a INT PRIMARY KEY, keepme INT);
INSERT INTO old1 VALUES (5, 5);
CREATE TABLE old2 (a INT PRIMARY KEY);
INSERT INTO old2 VALUES (6);
CREATE TABLE d1 (a INT);
CREATE TABLE d2 (a INT);
DELIMITER //
CREATE PROCEDURE tries()
BEGIN
  DECLARE CONTINUE HANDLER FOR SQLEXCEPTION BEGIN END;
  CREATE OR REPLACE TABLE old1 (a INT PRIMARY KEY) SELECT a FROM dup;
  CREATE TABLE fresh (a INT PRIMARY KEY) SELECT a FROM dup;
  CREATE OR REPLACE TABLE old2 (b INT, b INT);
  DROP TABLE d1, missing, d2;
  RENAME TABLE old2 TO old3, missing TO missing2;
  CREATE OR REPLACE TABLE lik LIKE missing;
END//
DELIMITER ;
CALL tries();
CREATE OR REPLACE TABLE dup SELECT 3 AS a;
CREATE OR REPLACE TABLE fresh (a INT PRIMARY KEY) REPLACE SELECT 1 AS a UNION ALL SELECT 1;
CREATE OR REPLACE TABLE fresh2 (a INT PRIMARY KEY) IGNORE SELECT 1 AS a UNION ALL SELECT 1;
LOCK TABLES fresh WRITE;
CREATE OR REPLACE TABLE fresh (a INT PRIMARY KEY, b INT);
INSERT INTO fresh VALUES (4, 4);
UNLOCK TABLES;
SELECT table_name FROM information_schema.tables WHERE table_schema = 'failed_create_select' ORDER BY 1;
