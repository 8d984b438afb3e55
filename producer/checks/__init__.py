"""The checks of `millrace check` for capture: the members of a source set, and a task's topic.

source.py   one set: asks every member, and judges the answers by the rules of ``producer.source.choose``
answers.py  the queries that only the checks send
topic.py    one topic, by the rules of ``producer.publish``
"""
