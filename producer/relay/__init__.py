"""The relay log: the server's own binlog files on our disk, byte for byte, whole source transactions for the reader.

``log`` writes, ``reader`` reads, ``recovery`` cuts a torn tail, ``purge`` deletes; ``groups``, ``walk`` and ``crc``
are the compiled kernels they share. Nothing here talks to a server: ``producer.receiver`` does.
"""
