-- report: debezium DBZ-1185, alibaba/canal#4044 (statements that concern no table, with their secrets); right: the rows around them arrive; flavour: both
CREATE DATABASE accounts_and_servers CHARACTER SET utf8mb4;
USE accounts_and_servers;
CREATE TABLE t (id INT PRIMARY KEY);
INSERT INTO t VALUES (1);
CREATE USER accounts_and_servers@localhost IDENTIFIED BY 'secret-1';
GRANT SELECT ON accounts_and_servers.* TO accounts_and_servers@localhost;
CREATE ROLE accounts_role;
GRANT accounts_role TO accounts_and_servers@localhost;
CREATE EVENT e ON SCHEDULE EVERY 1 YEAR DISABLE DO INSERT INTO t VALUES (99);
INSERT INTO t VALUES (2);
ALTER EVENT e RENAME TO e2;
DROP EVENT e2;
REVOKE ALL PRIVILEGES, GRANT OPTION FROM accounts_and_servers@localhost;
DROP ROLE accounts_role;
DROP USER accounts_and_servers@localhost;
FLUSH PRIVILEGES;
INSERT INTO t VALUES (3);
