"""The relay log: byte-for-byte copies of the server's binlog files on local disk. Readers see whole transactions only.

``writer`` writes, ``reader`` reads, ``pieces`` reads large events, ``recovery`` cuts a torn tail, ``purge`` deletes,
``control`` handles purge requests, ``holds`` and ``evictions`` know the tasks. ``compress`` packs closed files,
``stored`` reads both. ``producer.binlog`` knows the format. ``producer.source.receive.receiver`` talks to the server.
"""
