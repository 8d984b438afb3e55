-- report: debezium DBZ-4150, DBZ-5398, alibaba/canal#3917 (DDL under ANSI_QUOTES and NO_BACKSLASH_ESCAPES, with comments everywhere); right: the same names, defaults and comments; flavour: both
CREATE DATABASE quotes_in_names_and_modes CHARACTER SET utf8mb4;
USE quotes_in_names_and_modes;
SET SESSION sql_mode = 'ANSI_QUOTES,NO_BACKSLASH_ESCAPES,PIPES_AS_CONCAT';
CREATE TABLE "a""b`c" ("x y" INT PRIMARY KEY, "q'" VARCHAR(20) DEFAULT 'it''s \ back', e ENUM('a\', 'b''', '"') DEFAULT 'a\' COMMENT 'slash \') COMMENT = 'end \';
INSERT INTO "a""b`c" ("x y") VALUES (1), (2);
UPDATE "a""b`c" SET e = '"' WHERE "x y" = 2;
SET SESSION sql_mode = DEFAULT;
ALTER /* one */ TABLE -- two
 `a"b``c` # three
 ADD /*! COLUMN */ `new``col` VARCHAR(20) DEFAULT "dq \" '' \\" COMMENT 'semi;colon -- no comment';
UPDATE `a"b``c` SET `new``col` = CONCAT(`new``col`, '\0\Z\n%_') WHERE `x y` = 1;
CREATE TABLE `select` (`from` INT, `primary` INT, `key` INT, PRIMARY KEY (`primary`), KEY `index` (`key`));
INSERT INTO `select` VALUES (1, 2, 3);
ALTER TABLE `select` RENAME TO `t.dot`;
UPDATE `t.dot` SET `from` = 9;
CREATE TABLE `100%` (`%s` INT PRIMARY KEY, `?` INT, `{0}` INT, `:a` INT, `@b` INT);
INSERT INTO `100%` VALUES (1, 2, 3, 4, 5);
UPDATE `100%` SET `?` = 6;
DELETE FROM `100%` WHERE `{0}` = 4;
