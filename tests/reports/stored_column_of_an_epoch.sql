-- report: found by attack (FROM_UNIXTIME in a STORED column has the value of the applier's time zone); right: the source's value, or a stop with a code; flavour: mysql; stops: MR-5017
CREATE DATABASE stored_column_of_an_epoch CHARACTER SET utf8mb4;
USE stored_column_of_an_epoch;
SET time_zone = '+09:00';
CREATE TABLE e (id INT PRIMARY KEY, u BIGINT, dt DATETIME AS (FROM_UNIXTIME(u)) STORED);
INSERT INTO e (id, u) VALUES (1, 1700000000);
