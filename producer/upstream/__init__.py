"""The source set: asks its members, chooses one, requests its binlog and receives it.

``members`` asks, ``preflight`` and ``choice`` judge, ``dump`` requests, ``dump_stream`` and ``receiver`` receive,
``upstream`` is what the capture tasks of a set share on one worker.
"""
