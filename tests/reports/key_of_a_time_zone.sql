-- report: found by attack (the primary key is generated in another time zone); right: the row, or a stop with a code; flavour: mysql; stops: MR-5017
CREATE DATABASE key_of_a_time_zone CHARACTER SET utf8mb4;
USE key_of_a_time_zone;
CREATE TABLE t (d DATE AS (DATE(ts)) STORED NOT NULL, ts TIMESTAMP NOT NULL, n INT, PRIMARY KEY (d));
SET time_zone = '+09:00';
INSERT INTO t (ts, n) VALUES ('2024-01-01 00:30:00', 1);
