-- report: bugs.mysql.com 68790 and MDEV-20797 (FTS_DOC_ID of the user must grow; hidden ones are not in the binlog); right: the rows of the source; flavour: both
CREATE DATABASE fulltext_document_ids CHARACTER SET utf8mb4;
USE fulltext_document_ids;
CREATE TABLE own (FTS_DOC_ID BIGINT UNSIGNED NOT NULL AUTO_INCREMENT, id INT PRIMARY KEY, v TEXT, UNIQUE KEY FTS_DOC_ID_INDEX (FTS_DOC_ID), FULLTEXT KEY (v));
INSERT INTO own (id, v) VALUES (9, 'one two'), (8, 'two three'), (7, NULL);
UPDATE own SET v = 'four', FTS_DOC_ID = 20 WHERE id = 9;
UPDATE own SET FTS_DOC_ID = FTS_DOC_ID + 100 ORDER BY FTS_DOC_ID DESC;
DELETE FROM own WHERE id = 8;
INSERT INTO own (id, v) VALUES (1, 'five'), (2, 'six');
CREATE TABLE hidden (id INT PRIMARY KEY, v VARCHAR(100), FULLTEXT KEY (v));
INSERT INTO hidden VALUES (1, 'apple pie'), (2, 'pear');
UPDATE hidden SET v = 'apple';
ALTER TABLE hidden DROP INDEX v, ADD COLUMN w INT, ADD FULLTEXT KEY both_columns (v);
DELETE FROM hidden WHERE id = 1;
CREATE TABLE keyless (v TEXT, FULLTEXT KEY (v)) CHARACTER SET latin1;
INSERT INTO keyless VALUES ('x'), ('x'), ('y');
DELETE FROM keyless WHERE v = 'x' LIMIT 1;
