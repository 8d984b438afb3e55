"""The source set: queries its members, chooses one, requests its binlog and receives it.

set_stream   the stream that the capture tasks of a set share on one worker
feed         receives from one member, watches all, and switches between them
"""
