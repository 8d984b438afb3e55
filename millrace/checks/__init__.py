"""The values of `millrace check`, the run of its areas at the same time, and the checks of this machine.

requirement.py   one requirement, and whether it holds
areas.py         runs the areas at the same time; each has a time limit
host.py          the machine: disk, memory, open files, programs

The other checks are near the rules that they use: ``producer.checks``, ``consumer.checks``, ``registry.checks``,
``zk.checks``. No check changes anything.
"""
