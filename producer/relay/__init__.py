"""The relay log: the server's own binlog files on our disk, byte for byte, whole source transactions for the reader.

``writer`` writes, ``reader`` reads, ``recovery`` cuts a torn tail, ``purge`` deletes, ``control`` takes requests to
purge. The format is known to ``producer.binlog``. Nothing here talks to a server: ``producer.upstream.receiver`` does.
"""
