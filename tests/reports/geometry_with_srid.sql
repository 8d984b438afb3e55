-- report: debezium DBZ-507, bugs.mysql.com 93571 (geometry with an SRID, whose axes change places); right: the same bytes; flavour: mysql
CREATE DATABASE geometry_with_srid CHARACTER SET utf8mb4;
USE geometry_with_srid;
CREATE TABLE t (id INT PRIMARY KEY, g GEOMETRY NOT NULL SRID 4326, p POINT SRID 0, any_one GEOMETRY, SPATIAL KEY (g));
INSERT INTO t VALUES (1, ST_GeomFromText('POINT(48.85 2.35)', 4326), POINT(1, 2), ST_GeomFromText('LINESTRING(0 0, 1 1)', 3857)), (2, ST_GeomFromText('POLYGON((0 0, 0 1, 1 1, 0 0))', 4326), NULL, ST_GeomFromText('GEOMETRYCOLLECTION EMPTY'));
UPDATE t SET g = ST_GeomFromText('POINT(-33.9 151.2)', 4326, 'axis-order=lat-long') WHERE id = 1;
UPDATE t SET any_one = ST_SRID(any_one, 4326) WHERE id = 1;
DELETE FROM t WHERE id = 2;
CREATE TABLE keyless (g GEOMETRY, n INT);
INSERT INTO keyless VALUES (POINT(0, 0), 1), (ST_GeomFromText('POINT(0 0)', 4326), 2), (NULL, 3);
UPDATE keyless SET n = n + 10;
DELETE FROM keyless WHERE ST_SRID(g) = 4326;
