-- report: found by trying odd statements; right: the same indexes of ENUM and SET; flavour: both; stops: MR-5039
CREATE DATABASE f03; USE f03;
SET sql_mode = '';
CREATE TABLE f (id INT PRIMARY KEY, e ENUM('a','A ','b'), s SET('x','X','y'));
INSERT INTO f VALUES (1, 1, 1), (2, 2, 2), (3, 3, 7);
CREATE TABLE k (e ENUM('a','A','b') NOT NULL PRIMARY KEY, n INT);
INSERT INTO k VALUES (1, 1), (2, 2), (3, 3);
UPDATE k SET n = 9 WHERE n = 2;
DELETE FROM k WHERE n = 1;
-- the same by accents and by ignorable characters, not only by case: ENUM('é','ë') in latin1 (index 2 becomes 1), ENUM('','\0') under utf8mb4_0900_ai_ci (2 becomes 1), ENUM('ss','x','ß') (3 becomes 1), labels that differ in trailing spaces; an ALTER … MODIFY e ENUM(…) or a COLLATE to such a collation brings existing rows into it. `millrace compare` finds these rows (it compares the labels' bytes), `start: load` refuses such tables (MR-5094).
CREATE TABLE l (id INT PRIMARY KEY, e ENUM('é','ë') CHARACTER SET latin1);
INSERT INTO l VALUES (1, 2);
