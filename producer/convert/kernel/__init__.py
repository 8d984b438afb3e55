"""The compiled kernel: turns binlog bytes into finished record bytes without the interpreter.

    compiled    the decorator, its cache, its checked modes
    memory      loads, stores, copies
    avro        Avro's varints and bytes
    decimals    NEWDECIMAL
    temporal    dates and times as text
    doubles     the shortest text of a double
    charsets    bytes of a charset as UTF-8
    json_binary MySQL's binary JSON as text
    inflate     zlib streams (MariaDB's compressed columns and events)
    program     the column program of a table: the kernel's knowledge of it, as numbers
    rows        one row image, one rows event
    walk        one chunk of events

Each function depends only on its arguments: no I/O, no clock, no state except the arrays that are passed in.
"""
