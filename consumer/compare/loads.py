"""The tables of a task that a load copies now. The task's progress is not about their rows."""

from consumer.target.load_range import view_of
from consumer.target.streams import read_tables
from drivers.mysql.catalog import TableKey
from drivers.mysql.connection import MySqlSession


def loading(target: MySqlSession, task: str) -> frozenset[TableKey]:
    """The tables that wait for a load, are copied, or follow in a side stream. The current transaction stays open."""
    return view_of(task, read_tables(target, task), None).elsewhere
