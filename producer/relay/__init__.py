"""The relay log: byte-for-byte copies of the server's binlog files on local disk. Readers see whole transactions only.

``writer`` writes, ``reader`` reads, ``large_event`` reads large events, ``recovery`` cuts a torn tail. ``purge``
deletes, ``control`` handles requests to do so, ``holds`` and ``evictions`` know the tasks. ``compression`` packs closed
files, ``stored_file`` reads both kinds. ``producer.binlog`` knows the format.
"""
