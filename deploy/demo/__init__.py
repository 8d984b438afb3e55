"""The demonstration: a whole stack, and a live view of every stage while rows pass through.

run    its course, from start to summary
view   the live view
"""
