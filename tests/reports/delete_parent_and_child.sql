-- report: bugs.mysql.com 102586 and 80821 (a DELETE of a parent and its cascading child breaks a replica); right: the rows of the source, or a stop with a code; flavour: both
CREATE DATABASE delete_parent_and_child CHARACTER SET utf8mb4;
USE delete_parent_and_child;
CREATE TABLE p (id INT PRIMARY KEY, v INT);
CREATE TABLE c (id INT PRIMARY KEY, pid INT, n INT, FOREIGN KEY (pid) REFERENCES p (id) ON DELETE CASCADE);
INSERT INTO p VALUES (1, 1), (2, 2), (3, 3), (4, 4);
INSERT INTO c VALUES (10, 1, 0), (11, 1, 0), (20, 2, 0), (30, 3, 0), (31, 3, 1), (40, 4, 2);
DELETE c, p FROM c JOIN p ON p.id = c.pid WHERE p.id = 2;
DELETE FROM p WHERE id = 1;
INSERT INTO p VALUES (1, 7);
INSERT INTO c VALUES (10, 1, 5);
UPDATE c JOIN p ON p.id = c.pid SET c.n = 9, p.v = 9 WHERE p.id = 3;
DELETE FROM p WHERE id >= 3 ORDER BY id DESC LIMIT 1;
