-- report: alibaba/canal#3330, pingcap/ticdc#4447 (several renames in one statement, with partitioned tables and two databases); right: each table has its own rows; flavour: both
CREATE DATABASE rename_in_a_circle CHARACTER SET utf8mb4;
USE rename_in_a_circle;
CREATE DATABASE rename_in_a_circle2;
CREATE TABLE a (id INT PRIMARY KEY, v VARCHAR(9));
CREATE TABLE b (id INT PRIMARY KEY, v VARCHAR(9)) PARTITION BY HASH (id) PARTITIONS 3;
CREATE TABLE rename_in_a_circle2.c (id INT PRIMARY KEY, v VARCHAR(9), n INT);
INSERT INTO a VALUES (1, 'a');
INSERT INTO b VALUES (1, 'b');
INSERT INTO rename_in_a_circle2.c VALUES (1, 'c', 3);
rename 
 table 
 `a` to rename_in_a_circle2.tmp ,b to a, `rename_in_a_circle2`.`c` TO b , rename_in_a_circle2.tmp TO rename_in_a_circle2.c;
UPDATE a SET v = 'was b';
UPDATE b SET v = 'was c', n = 4;
UPDATE rename_in_a_circle2.c SET v = 'was a';
ALTER TABLE a RENAME TO rename_in_a_circle2.a, ADD COLUMN w INT DEFAULT 1;
RENAME TABLE rename_in_a_circle2.a TO A_b, b TO rename_in_a_circle2.B;
UPDATE A_b SET w = 2;
DELETE FROM rename_in_a_circle2.B;
