-- report: MDEV-8334 (utf8 means utf8mb3 or utf8mb4, by old_mode of the session); right: columns declared as utf8 have the source's character set on the target and emoji arrive; flavour: mariadb; replica: stops; stops: MR-5011
CREATE DATABASE old_mode_utf8;
USE old_mode_utf8;
SET SESSION old_mode = '';
CREATE TABLE four (id INT PRIMARY KEY, v VARCHAR(20) CHARACTER SET utf8, n NATIONAL VARCHAR(10), c CHAR(3) CHARACTER SET utf8 COLLATE utf8_bin) DEFAULT CHARSET = utf8;
INSERT INTO four VALUES (1, '😀', 'é', 'é'), (2, 'é', 'x', '');
CREATE DATABASE old_mode_utf8b CHARACTER SET utf8;
CREATE TABLE old_mode_utf8b.t (v VARCHAR(10) NOT NULL PRIMARY KEY);
INSERT INTO old_mode_utf8b.t VALUES ('😀'), ('a');
ALTER TABLE four ADD COLUMN w TEXT CHARACTER SET utf8, CONVERT TO CHARACTER SET utf8;
UPDATE four SET w = '🚀';
SET SESSION old_mode = 'UTF8_IS_UTF8MB3';
CREATE TABLE three (id INT PRIMARY KEY, v VARCHAR(20) CHARACTER SET utf8);
INSERT INTO three VALUES (1, 'é');
SELECT table_name, column_name, character_set_name FROM information_schema.columns WHERE table_schema LIKE 'old_mode_utf8%' AND character_set_name IS NOT NULL ORDER BY 1, 2;
