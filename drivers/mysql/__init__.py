"""MySQL and MariaDB as clients meet them.

errors   the error numbers of the servers and of the driver, each with its kind
"""
