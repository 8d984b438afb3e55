"""The demonstration: everything at once, and a look at every stage while rows go through.

run        the course of it, from start to summary
observe    what a subscriber of the topic and a reader of the target see, with the age of it
view       the live view
"""
