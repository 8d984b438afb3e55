"""The source set: queries its members, chooses one, requests its binlog and receives it.

``members`` queries, ``preflight`` and ``choice`` judge, ``dump`` requests, ``dump_stream`` and ``receiver`` receive.
``upstream`` holds the stream that the capture tasks of a set share on one worker.
"""
