-- report: pingcap/tiflow#3421, alibaba/canal#1852 (triggers of the source, views and routines with the names of tables); right: a trigger's rows arrive once; flavour: both
CREATE DATABASE views_triggers_and_routines CHARACTER SET utf8mb4;
USE views_triggers_and_routines;
CREATE TABLE t (id INT PRIMARY KEY, v INT);
CREATE TABLE log (n INT AUTO_INCREMENT PRIMARY KEY, id INT, what VARCHAR(9));
CREATE TRIGGER ins AFTER INSERT ON t FOR EACH ROW INSERT INTO log (id, what) VALUES (NEW.id, 'ins');
DELIMITER $$
CREATE TRIGGER upd BEFORE UPDATE ON t FOR EACH ROW BEGIN SET NEW.v = NEW.v + 100; INSERT INTO log (id, what) VALUES (OLD.id, 'upd'); END$$
CREATE PROCEDURE fill(IN n INT) BEGIN DECLARE i INT DEFAULT 0; WHILE i < n DO INSERT INTO t VALUES (i + 100, i); SET i = i + 1; END WHILE; END$$
DELIMITER ;
CREATE VIEW w AS SELECT id, v FROM t WHERE v > 0;
INSERT INTO t VALUES (1, 1), (2, 2);
UPDATE w SET v = 5 WHERE id = 1;
CALL fill(3);
CREATE FUNCTION plus_one(x INT) RETURNS INT DETERMINISTIC RETURN x + 1;
UPDATE t SET v = plus_one(v);
DROP TRIGGER upd;
DELETE FROM t WHERE id > 100;
DROP VIEW w;
CREATE TABLE w (id INT PRIMARY KEY);
INSERT INTO w VALUES (1);
DROP PROCEDURE fill;
