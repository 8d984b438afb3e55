-- report: found by trying odd statements; right: the foreign key and its rows; flavour: mysql
CREATE DATABASE f05; USE f05;
SET SESSION restrict_fk_on_non_standard_key = OFF;
CREATE TABLE p (id INT PRIMARY KEY, a INT, b INT, KEY (a, b));
CREATE TABLE c (id INT PRIMARY KEY, a INT, FOREIGN KEY (a) REFERENCES p (a) ON DELETE CASCADE);
INSERT INTO p VALUES (1, 1, 1);
INSERT INTO c VALUES (1, 1);
