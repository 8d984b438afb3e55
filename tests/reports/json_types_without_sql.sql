-- report: vitessio/vitess#19880, block/spirit#842 (columns computed of a type inside JSON: BIT, BINARY, BLOB, TIMESTAMP); right: rows without such a dependency arrive, the others stop with a code; flavour: mysql; stops: MR-5017
CREATE DATABASE json_types_without_sql;
USE json_types_without_sql;
CREATE TABLE s (id INT PRIMARY KEY, ts TIMESTAMP(6), b BIT(9), n BINARY(3), l BLOB);
INSERT INTO s VALUES (1, '2024-01-02 03:04:05.5', 5, 'ab', 'abc');
CREATE TABLE plain (id INT PRIMARY KEY, j JSON);
INSERT INTO plain SELECT id, JSON_OBJECT('ts', ts, 'b', b, 'n', n, 'l', l) FROM s;
CREATE TABLE other (id INT PRIMARY KEY, j JSON, k INT AS (id + 1) STORED, t VARCHAR(30) AS (j->>'$.ts') VIRTUAL, UNIQUE KEY (t));
INSERT INTO other (id, j) SELECT * FROM plain;
UPDATE other SET id = id + 1;
CREATE TABLE typed (id INT PRIMARY KEY, j JSON, t VARCHAR(30) AS (JSON_TYPE(j->'$.b')) STORED);
INSERT INTO typed (id, j) SELECT * FROM plain;
