-- The image has created the account `millrace` without rights. SELECT: for `millrace compare` and loads.
GRANT REPLICATION SLAVE, BINLOG MONITOR, SLAVE MONITOR, SELECT ON *.* TO millrace;
CREATE DATABASE shop;
CREATE TABLE shop.orders (id INT AUTO_INCREMENT PRIMARY KEY, customer VARCHAR(40) NOT NULL, price DECIMAL(8, 2) NOT NULL);
INSERT INTO shop.orders (customer, price) VALUES ('Grace', 1.25), ('Ada', 2.00);
