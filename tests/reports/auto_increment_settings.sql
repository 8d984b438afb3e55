-- report: bugs.mysql.com 34732 (auto_increment settings missing on the replica's side); right: numbers that ALTER … AUTO_INCREMENT gives to rows with a key follow the source session's auto_increment_increment and offset; flavour: both
CREATE DATABASE auto_increment_settings;
USE auto_increment_settings;
CREATE TABLE a (k VARCHAR(5) NOT NULL PRIMARY KEY);
INSERT INTO a VALUES ('a'), ('b'), ('c'), ('d');
SET SESSION auto_increment_increment = 10, auto_increment_offset = 3;
ALTER TABLE a ADD COLUMN n INT NOT NULL AUTO_INCREMENT, ADD UNIQUE KEY (n);
INSERT INTO a (k) VALUES ('e');
SET SESSION auto_increment_increment = 7, auto_increment_offset = 5;
CREATE TABLE b (n INT NOT NULL AUTO_INCREMENT PRIMARY KEY, k VARCHAR(5) NOT NULL) SELECT k FROM a ORDER BY k;
CREATE TABLE c (id INT PRIMARY KEY, n INT NOT NULL DEFAULT 0);
INSERT INTO c VALUES (1, 0), (2, 0), (3, 9);
ALTER TABLE c MODIFY n INT NOT NULL AUTO_INCREMENT, ADD KEY (n);
SET SESSION auto_increment_increment = 1, auto_increment_offset = 1;
UPDATE c SET id = id + 10 WHERE n > 8;
UPDATE a SET k = 'z' WHERE n = 13;
DELETE FROM b WHERE n = 12;
SELECT * FROM a ORDER BY n;
SELECT * FROM c ORDER BY id;
