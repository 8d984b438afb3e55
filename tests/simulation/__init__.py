"""A world in one process: the real code of both halves over models of what it talks to.

gate             a process: every request it makes may be its last, may wait, may fail
source           a source server: binlog files, and what they mean; binlog: how each flavour writes and tells them
model_kafka      one partition and its transaction coordinator
model_zookeeper  an ensemble: sessions, ephemeral nodes
disk             what a crash leaves of a relay directory
model_target     a target server behind PyMySQL's interface; target_statements: what it can be asked
capture, apply   a process of each half
world            all of them, and what becomes of them
judges           what must hold of topic and target
machine          what may happen, as rules for hypothesis
guards           guards that can be taken away, to see that the simulation notices
"""
