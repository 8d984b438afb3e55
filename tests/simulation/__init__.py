"""A world in one process: the real code of capture and apply over models of the servers.

gate             a process: at any of its requests it may be killed, stopped, or fail
source           a source server: binlog files and their meaning; binlog: the format of each flavour
model_kafka      one partition and its transaction coordinator
model_zookeeper  an ensemble: sessions, ephemeral nodes
disk             the state of a relay directory after a crash
model_target     a target server with PyMySQL's interface; target_statements: the statements it knows
capture, apply   one process of each
world            all of them, and the events that hit them
judges           the invariants of topic and target
machine          the possible events, as rules for Hypothesis

``tests/mutants/simulation_guards.py`` removes guards of the product, to show that the simulation notices.
"""
