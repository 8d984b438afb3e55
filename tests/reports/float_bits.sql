-- report: mydumper/mydumper#2153, percona-toolkit PT-2378 (FLOAT printed with too few digits); right: FLOAT and DOUBLE have the same bits on both sides, rows are found by them in keys and in tables without a key; flavour: both
CREATE DATABASE float_bits;
USE float_bits;
CREATE TABLE nokey (f FLOAT, d DOUBLE, g FLOAT(10,2), h DOUBLE(20,5), u FLOAT UNSIGNED);
INSERT INTO nokey VALUES (0.1, 0.1, 0.1, 0.1, 0.1), (16777217, 9007199254740993, 123456.78, 12345678901234.12345, 3.402823e38), (-0.0, -0.0, -0.0, -0.0, 0), (1.17549435e-38, 2.2250738585072014e-308, 0, 0, 1e-45), (3.4028234e38, 1.7976931348623157e308, 99999999.99, 999999999999999.99999, 0.3), (8388609.5, 0.30000000000000004, NULL, NULL, NULL);
UPDATE nokey SET g = 7 WHERE f < 0.2 AND f > 0.05;
UPDATE nokey SET d = d / 3 WHERE d <> 0;
UPDATE nokey SET f = f * 1.1, u = u / 7 WHERE f BETWEEN -1 AND 1000;
DELETE FROM nokey WHERE d > 1e300;
INSERT INTO nokey (f, d) VALUES (0.0, 0.0), (-0.0, 0.0), (0.0, -0.0);
UPDATE nokey SET g = 1 WHERE f = 0 AND d = 0 LIMIT 2;
CREATE TABLE k (f FLOAT NOT NULL, d DOUBLE NOT NULL, n INT, PRIMARY KEY (f, d));
INSERT INTO k VALUES (0.1, 0.1, 1), (0.1, 0.2, 2), (-0.0, 5e-324, 3), (1e38, -1e308, 4), (0.33333334, 0.3333333333333333, 5);
UPDATE k SET n = n + 10;
UPDATE k SET d = d * 3, f = f * 3 WHERE n = 15;
DELETE FROM k WHERE n = 13;
ALTER TABLE k MODIFY f DOUBLE NOT NULL;
UPDATE k SET n = n + 1;
SELECT f + 0.0e0, d, n FROM k ORDER BY f, d;
