"""The checks of `millrace check` for apply: the primary of a target set, by the rules of ``consumer.target`` and
``consumer.tables``.

target.py   one target set, and the topic of an apply task
load.py     `start: load` of an apply task
compare.py  `compare` of an apply task
"""
