"""The ledger on a whole stack: its load, the subscriber beside it, and all oracles at the end.

    with ledger_load(fault_stack, seed) as ledger:
        …                                            # break things
        ledger.wait_seen()                           # the subscriber reads while the load runs
        ledger.check()                               # the load ends; AssertionError names seed, database and place

``check`` may also follow the block; then the subscriber has not seen the records published after the block.
Not done here: repairing what was broken. When ``check`` is called, every service and server must be able to continue.
"""

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count

from millrace.deploy.local.services import TOPIC
from millrace.deploy.servers import DatabaseServer
from millrace.deploy.servers.programs import mysql_programs
from millrace.deploy.workload.shop import Connection
from tests.fixtures.stack import FaultStack
from tests.kit.waiting import eventually
from tests.kit.workload.ledger import DDL_INTERVAL_S, create_ledger, run_ledger
from tests.kit.workload.ledger_parts import LedgerCounts
from tests.oracle.binlog import BinlogOracle, Logged, Login, read_binlog, status_of
from tests.oracle.binlog_text import TextOracle, parse_rows, read_text
from tests.oracle.books import BooksOracle, Table
from tests.oracle.reader import Reading, Subscriber, Topic, end_of, read_again
from tests.oracle.record import Message
from tests.oracle.tables import check_replayed, check_sums, sums_of
from tests.oracle.topic import TopicOracle

FOREVER_S = 86_400.0
SETTLED_S = (
    400  # a ledger has much DDL; each statement takes a Spark job, about a second on a busy machine
)
LOOK_S = 0.1
_numbers = count(1)


@dataclass(frozen=True, slots=True)
class Start:
    """The positions before the ledger's database was created: of the topic, and of a member's binlog.

    The member must keep its binlog until the check.
    """

    offset: int
    member: DatabaseServer
    file: str
    position: int


@dataclass(slots=True)
class Streams:
    """The oracles that one reading of the topic feeds."""

    topic: TopicOracle
    books: BooksOracle

    def feed(self, message: Message) -> None:
        """Feed the next message to both."""
        self.topic.feed(message)
        self.books.feed(message)

    def finish(self, acknowledged: Mapping[int, int]) -> None:
        """Check the end of both."""
        self.topic.finish()
        self.books.finish(acknowledged)


@dataclass(frozen=True, slots=True)
class Verdict:
    """The counts of compared items of a successful check."""

    transactions: int
    rows: int
    values: int
    sums: int
    ddl: int
    rows_of_mysqlbinlog: int
    seen_in_load: int  # records that the subscriber had read when the load ended


@dataclass(slots=True)
class Ledger:
    """A running ledger; made by ``ledger_load``."""

    stack: FaultStack
    database: str
    seed: int
    start: Start
    connect: Callable[[str | None], Connection]
    ddl_interval_s: float = DDL_INTERVAL_S
    counts: LedgerCounts = field(default_factory=LedgerCounts)
    _stop: threading.Event = field(default_factory=threading.Event)
    _failures: list[BaseException] = field(default_factory=list)
    _thread: threading.Thread | None = None
    _subscriber: Subscriber | None = None
    _streams: Streams | None = None
    _seen_in_load: int | None = None

    @property
    def topic(self) -> Topic:
        """The topic and registry for the subscriber."""
        endpoints = self.stack.stack.endpoints
        return Topic(endpoints.kafka, TOPIC, endpoints.registry)

    @property
    def has_failed(self) -> bool:
        """Whether the load ended early; ``check`` raises the cause."""
        return bool(self._failures)

    @property
    def seen(self) -> int:
        """Records that the subscriber has read."""
        assert self._subscriber is not None
        return len(self._subscriber.reading.seen)

    def wait_seen(self) -> None:
        """Wait until the subscriber has read further records, while the load runs."""
        assert self._subscriber is not None
        subscriber, before = self._subscriber, self.seen
        eventually(
            lambda: self.seen > before or self.has_failed or subscriber.has_failed,
            timeout_s=SETTLED_S,
            every_s=LOOK_S,
            what=f"the subscriber reads on after {before} records",
        )

    def begin(self) -> None:
        """Start the load and the subscriber."""
        self._streams = self._new_streams()
        self._subscriber = Subscriber(self.topic, self.start.offset, self._streams.feed)
        self._subscriber.start()
        self._thread = threading.Thread(target=self._run, name="ledger")
        self._thread.start()

    def end_load(self) -> None:
        """End the source transactions; raises the error that ended the load early."""
        self._end()
        if self._failures:
            raise self._failures[0]

    def leave(self) -> None:
        """End all threads, after success or failure."""
        self._end()
        if self._subscriber is not None:
            self._subscriber.abandon()

    def check(self) -> Verdict:
        """End the load, wait until everything is applied, run every oracle; AssertionError with coordinates."""
        try:
            self.end_load()
            assert self._seen_in_load, "the subscriber read nothing while the load ran"
            self.stack.settle(timeout_s=SETTLED_S)
            self.stack.stack.source.wait_for_replicas()
            return self._ask()
        except BaseException as failure:
            failure.add_note(f"seed {self.seed}, {self.database}, {self.start}")
            raise

    def _end(self) -> None:
        """Count the records that the subscriber has read, once, before the load ends."""
        if self._seen_in_load is None:
            self._seen_in_load = self.seen
        self._stop.set()
        if self._thread is not None:
            self._thread.join()

    def _ask(self) -> Verdict:
        assert self._subscriber is not None
        assert self._streams is not None
        assert self._seen_in_load is not None
        acknowledged = self.counts.acknowledged
        if self._subscriber.is_reading:
            self._subscriber.stop(end_of(self.topic))
            self._streams.finish(acknowledged)
        end = max(self._subscriber.position, end_of(self.topic))
        reading, again = Reading(), self._new_streams()
        binlog = BinlogOracle(self.database, self._binlog())
        text = self._text_oracle()
        for message in read_again(self.topic, self.start.offset, end, reading):
            again.feed(message)
            binlog.feed(message)
            if text is not None:
                text.feed(message)
        self._subscriber.reading.check_begins(reading)
        again.finish(acknowledged)
        binlog.finish()
        if text is not None:
            text.finish()
        self._check_tables(again.books.tables)
        return Verdict(
            again.topic.transaction_count,
            binlog.rows_compared,
            binlog.values_compared,
            again.books.sums_checked,
            self.counts.ddl,
            0 if text is None else text.rows_compared,
            self._seen_in_load,
        )

    def _new_streams(self) -> Streams:
        return Streams(TopicOracle(is_whole=self.start.offset == 0), BooksOracle(self.database))

    def _run(self) -> None:
        try:
            create_ledger(lambda: self.connect(None), database=self.database)
            run_ledger(
                lambda: self.connect(self.database),
                duration_s=FOREVER_S,
                seed=self.seed,
                counts=self.counts,
                ddl_interval_s=self.ddl_interval_s,
                stop=self._stop,
            )
        except BaseException as failure:  # noqa: BLE001 - raised again by ``end_load``
            self._failures.append(failure)

    # ---- the source, from outside ----------------------------------------------------------------------

    def _binlog(self) -> Iterator[Logged]:
        found = self.stack.stack.description.source[0]
        login = Login(found.host, self.start.member.port, found.user, found.password)
        return read_binlog(login, self.start.file, self.start.position, self.database)

    def _text_oracle(self) -> TextOracle | None:
        """The rows by mysqlbinlog; None on MariaDB, whose program does not come with the server."""
        member = self.start.member
        if member.flavour != "mysql":
            return None
        programs = mysql_programs()
        assert programs is not None, "no MySQL"
        assert programs.mysqlbinlog is not None, "no mysqlbinlog beside mysqld nor in the cache"
        files = [
            path
            for path in sorted(member.binlog_dir.glob("mysql-bin.[0-9]*"))
            if path.name >= self.start.file
        ]
        lines = read_text(programs.mysqlbinlog, files, self.start.position)
        return TextOracle(self.database, parse_rows(lines, self.database))

    def _check_tables(self, replayed: Mapping[str, Table]) -> None:
        source, target = self.stack.stack.source.primary, self.stack.stack.target
        check_sums(sums_of(source, self.database), sums_of(target, self.database))
        check_replayed(source, self.database, replayed)


@contextmanager
def ledger_load(
    stack: FaultStack,
    seed: int,
    *,
    connect: Callable[[str | None], Connection] | None = None,
    ddl_interval_s: float = DDL_INTERVAL_S,
) -> Iterator[Ledger]:
    """Run the ledger in its own database until ``check`` or the end of the block. Drops earlier databases.

    ``connect`` opens a connection to a database; by default one that does not outlive the primary.
    """
    for database in stack.databases:
        stack.stack.source.execute(f"DROP DATABASE {database}")
    stack.databases.clear()
    endpoints = stack.stack.endpoints
    member = stack.stack.source.primary
    offset = end_of(Topic(endpoints.kafka, TOPIC, endpoints.registry))
    ledger = Ledger(
        stack,
        f"ledger_{seed}_{next(_numbers)}",
        seed,
        Start(offset, member, *status_of(member)),
        connect or stack.connect,
        ddl_interval_s,
    )
    stack.databases.append(ledger.database)
    ledger.begin()
    try:
        yield ledger
    finally:
        ledger.leave()
