-- report: vitessio/vitess#9546 (events skipped for rows whose key has an ENUM), block/spirit#417; right: keys with ENUM (ordered by index, compared by text) are loaded, changed and compared completely; 40,000 rows; flavour: both
CREATE DATABASE enum_set_key;
USE enum_set_key;
CREATE TABLE d (n INT PRIMARY KEY);
INSERT INTO d VALUES (0), (1), (2), (3), (4), (5), (6), (7), (8), (9);
CREATE TABLE ev (kind ENUM('zebra','apple','Mango','10','2','é') NOT NULL, id INT NOT NULL, s SET('c','a','b') NOT NULL, v INT, PRIMARY KEY (kind, s, id));
INSERT INTO ev SELECT 1 + a.n % 6, b.n * 1000 + c.n * 100 + e.n * 10 + a.n, f.n % 8, 0 FROM d a, d b, d c, d e, d f WHERE f.n < 4;
UPDATE ev SET v = id WHERE kind = 'Mango';
UPDATE ev SET kind = 'apple' WHERE kind = 'zebra' AND id < 50;
DELETE FROM ev WHERE kind = '2' AND id % 2 = 0;
ALTER TABLE ev MODIFY kind ENUM('apple','zebra','Mango','10','2','é','new') NOT NULL;
UPDATE ev SET kind = 'new' WHERE kind = '10' AND id < 200;
DELETE FROM ev WHERE kind = 'zebra' AND s = 'a,c';
SELECT kind, COUNT(*), SUM(v) FROM ev GROUP BY kind ORDER BY kind + 0;
