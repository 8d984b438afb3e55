"""The knowledge that both halves share of other products: MySQL and MariaDB, one package for both.

Not done here: anything that only one half needs. Nothing here imports ``producer``, ``consumer`` or ``zk``.
"""
