"""What the ledger workload must have left in the topic, the binlog and the target, told by code that is not ours.

    record.py        a record's bytes and a schema of the registry → ``Message``      fastavro, docs/record.md
    reader.py        a plain consumer, in a thread while things die, and again        confluent_kafka, urllib
    topic_oracle.py  the order of the topic: seq, epochs, whole source transactions
    books_oracle.py  the ledger in it: dense entries, no ghosts, the sum, every before image
    binlog.py        the source's binlog, row by row                                  python-mysql-replication
    binlog_text.py   the same from the server's own program                           mysqlbinlog
    tables.py        source and target by the servers' own sums                       CHECKSUM TABLE
    run.py           ``ledger_load(fault_stack, seed)`` and ``Ledger.check``

Nothing here imports producer, consumer or schemas. An oracle is fed messages in order and raises AssertionError with
coordinates at the first that is wrong; ``tests/unit/test_ledger_oracles.py`` makes every harm and sees it named.
"""
