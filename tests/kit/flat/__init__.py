"""Maxwell's and Canal's own classes as judges of ``maxwell-json`` and ``canal-json``: the same binlog, field by field.

jvm          a JVM with the jars of one of them, which Python drives
maxwell      Maxwell's records of binlog files
canal        Canal's messages of binlog files
published    Millrace's records of the same files
comparison   the fields that differ
expected     the differences that are meant, which docs/formats.md lists
"""
