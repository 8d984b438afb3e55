-- report: debezium DBZ-2053, bugs.mysql.com 41 (tables without transactions); right: a stop with a code that says what to do; flavour: both; stops: MR-5015
CREATE DATABASE table_of_another_engine CHARACTER SET utf8mb4;
USE table_of_another_engine;
CREATE TABLE m (id INT PRIMARY KEY, v INT) ENGINE = MyISAM;
INSERT INTO m VALUES (1, 1);
