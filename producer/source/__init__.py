"""The source set: its members asked, one chosen, its binlog requested.

``connection`` is the only module of ``producer`` that knows PyMySQL. ``inventory`` asks a member, ``preflight`` and
``choice`` judge the answers (pure), ``binlog_files`` finds where to begin, ``dump`` asks for the stream.
"""
