"""Reads a set topic as a subscriber: decodes rows and checks that none is missing, repeated or out of order.

verify   checks the guarantees of a set topic record by record
decode   finds the schemas of a topic's records
tail     a record as a line of text or as JSON
"""
