"""Streams: the apply runs of one task, and what the target has already when one begins.

A task has the stream *main*, and while tables are loaded later, a *side stream* with these tables. See
``consumer.target.load_range`` for the tables of each, ``consumer.window.overlap`` for the rows that a load has copied.
"""
