"""Checks results in topics, the binlog and the target, with code independent of the product. Most are of the ledger.

    record.py        a record's bytes and a schema of the registry → ``Message``      fastavro, docs/record.md
    reader.py        a plain consumer, in a thread while processes die, and again       confluent_kafka, urllib
    topic.py         the order of the topic: seq, epochs, whole source transactions
    books.py         the ledger in it: dense entries, no ghosts, the sum, every before image
    binlog.py        the source's binlog, row by row                                  python-mysql-replication
    binlog_text.py   the same with the server's own program                           mysqlbinlog
    tables.py        source and target by the servers' own sums                       CHECKSUM TABLE
    subscriber.py    a subscriber of published topics, a program of its own          confluent_kafka
    published.py     what a publish task must have written, and what it has             docs/views.md, docs/formats.md
    run.py           ``ledger_load(fault_stack, seed)`` and ``Ledger.check``

No module here imports producer, consumer or schemas. An oracle receives messages in order and raises AssertionError
with coordinates at the first wrong one. ``tests/contracts/test_ledger_oracles.py`` causes each harm.
"""
