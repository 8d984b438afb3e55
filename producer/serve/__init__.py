"""Serves a relay log to replicas and other readers over the MySQL replication protocol.

``server`` accepts connections, ``session`` answers one, ``dump`` streams events to it. ``catalogue`` follows the relay
directory that a worker writes. *Invariant:* nothing is written to the relay directory, and no lock of it is taken.
"""
