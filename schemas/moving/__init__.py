"""Configuration of Debezium, Canal, Maxwell and DM as documents. Pure: texts in, plain values out.

``read_configuration`` recognizes the tool. The result is a ``Draft``: the documents, what has no equal in Millrace, and
what a user must fill in, because no configuration has it. ``millrace import`` prints it.
"""

from millrace.schemas.moving.draft import Draft, Left
from millrace.schemas.moving.recognize import read_configuration

__all__ = ["Draft", "Left", "read_configuration"]
