"""The bank on a whole stack: its load, and what the topic and both servers must hold of it.

with bank_load(stack, seed, connect) as bank:
    …                                            # break things
stack.settle()
bank.check()
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from millrace.deploy.local.services import TOPIC
from millrace.deploy.workload.shop import Connection
from tests.fixtures.stack import FaultStack
from tests.kit.workload.bank import create_bank, open_bank
from tests.oracle.books import BooksOracle
from tests.oracle.reader import Reading, Topic, end_of, read_again
from tests.oracle.tables import check_replayed, check_sums, sums_of


@dataclass(frozen=True, slots=True)
class Bank:
    """A bank whose load has run; made by ``bank_load``."""

    stack: FaultStack
    database: str
    start: int  # the end of the topic before the database was created
    acknowledged: dict[int, int] = field(default_factory=dict)

    @property
    def topic(self) -> Topic:
        """The topic and registry for the subscriber."""
        endpoints = self.stack.stack.endpoints
        return Topic(endpoints.kafka, TOPIC, endpoints.registry)

    def check(self) -> int:
        """Check every transfer, once everything is applied, and return the count of sums that were checked."""
        books, topic = BooksOracle(self.database), self.topic
        for message in read_again(topic, self.start, end_of(topic), Reading()):
            books.feed(message)
        books.finish(self.acknowledged)
        source, target = self.stack.stack.source.primary, self.stack.stack.target
        check_sums(sums_of(source, self.database), sums_of(target, self.database))
        check_replayed(source, self.database, books.tables)
        return books.sums_checked


@contextmanager
def bank_load(
    stack: FaultStack, seed: int, connect: Callable[[str | None], Connection]
) -> Iterator[Bank]:
    """Run the bank in its own database during the block. ``connect`` opens a connection to a database."""
    endpoints = stack.stack.endpoints
    topic = Topic(endpoints.kafka, TOPIC, endpoints.registry)
    bank = Bank(stack, f"bank_{seed}", end_of(topic))
    create_bank(lambda: connect(None), database=bank.database)
    stack.databases.append(bank.database)
    with open_bank(lambda: connect(bank.database), seed=seed, acknowledged=bank.acknowledged):
        yield bank
