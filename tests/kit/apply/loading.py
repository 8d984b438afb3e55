"""Loads without Spark and without a topic: real source and target, copies in threads of this process."""

import pickle
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field, replace

from pymysql.err import MySQLError

from millrace.consumer.backfill.loader import LaterLoad
from millrace.consumer.load.copy_order import CopyOrder, execute_copy
from millrace.consumer.load.load import Destination, Load, RowSource, first_load
from millrace.consumer.target.fence import raise_fence
from millrace.consumer.target.load_range import side_of
from millrace.consumer.target.loads import (
    COPIES,
    WAITS,
    Amount,
    LoadStream,
    LoadTable,
    read_tables,
    set_waiting,
)
from millrace.consumer.target.progress import Owner, create_tables
from millrace.consumer.target.running_statement import await_statement
from millrace.consumer.task.start import applier_of, end_load, has_to_load, loading, owner_of
from millrace.consumer.turn.order import Answer, result_of
from millrace.consumer.turn.resident import forget
from millrace.deploy.servers import Account, DatabaseServer, DatabaseSet, sql
from millrace.drivers.mysql.catalog import TableKey
from millrace.drivers.mysql.connection import Endpoint, connect
from millrace.drivers.mysql.grants import Grant, Role, needed_grants
from millrace.schemas.documents import (
    ApplyRules,
    ApplyTask,
    Brokers,
    CaptureTask,
    Directives,
    LoadRules,
    SetDocument,
    Start,
    TableFilter,
    TopicAddress,
)
from millrace.schemas.gtid import GtidPosition
from millrace.schemas.stages import Loaded
from millrace.schemas.view.view import View, view_of_filter
from tests.kit.apply.documents import local_set
from tests.kit.apply.local import endpoint_of
from tests.kit.database_sessions import kill_session
from tests.kit.waiting import eventually

PASSWORD_VARIABLE = "MILLRACE_LOAD_PASSWORD"
LOADER = Account("loader", "loader-secret")


@dataclass
class LocalCopier:
    """Copies in the calling thread; values go through pickle as with Spark. ``before`` is called before each."""

    before: Callable[[CopyOrder], object] = lambda _: None
    orders: list[CopyOrder] = field(default_factory=list)

    def call(self, order: CopyOrder) -> Amount | None:
        """See ``Copier``."""
        self.before(order)
        self.orders.append(order)
        sent: CopyOrder = pickle.loads(pickle.dumps(order))
        answer: Answer[Amount | None] = pickle.loads(pickle.dumps(execute_copy(sent)))
        return result_of(answer)

    def stop(self) -> None:
        """A copy of a test is short."""


def source_document(name: str, members: Sequence[DatabaseServer]) -> SetDocument:
    """A set of these servers with the account of a load; its password is in ``PASSWORD_VARIABLE``."""
    ports = [server.port for server in members]
    return local_set(name, ports, user=LOADER.user, variable=PASSWORD_VARIABLE)


def load_task(
    name: str,
    *,
    tables: TableFilter | None = None,
    rules: LoadRules | None = None,
    view: View | None = None,
) -> ApplyTask:
    """A task that starts with a load. ``view``: in the place of ``tables``."""
    return ApplyTask(
        name=name,
        source=TopicAddress(topic=name, brokers=Brokers("")),
        target="target",
        start=Start(is_load=True),
        view=view or view_of_filter(tables or TableFilter(include=(f"{name}.*",))),
        rules=ApplyRules(load=rules or LoadRules()),
    )


def create_loader(server: DatabaseServer, grants: Sequence[Grant]) -> None:
    """Create the account of a load. Other tests use the server's own account."""
    own = server.account
    server.create_least_account(LOADER, grants)
    server.account = own


BUSY_S = 3600


@contextmanager
def busy(server: DatabaseServer) -> Iterator[None]:
    """One more thread of the server runs during the block, however long that lasts."""
    statement = f"SELECT SLEEP({BUSY_S})"

    def hold() -> None:
        with suppress(MySQLError):  # it is killed
            server.execute(statement)

    def holders() -> list[sql.Row]:
        asked = "SELECT ID FROM information_schema.PROCESSLIST WHERE INFO = %s"
        return server.execute(asked, (statement,))

    thread = threading.Thread(target=hold)
    thread.start()
    try:
        eventually(holders, what="a statement that runs")
        yield
    finally:
        for (number,) in holders():
            kill_session(server, number)
        thread.join()


@dataclass
class LoadRig:
    """One task, whose databases on source and target have its name.

    ``loaded``: the reported stages; ``report`` gets each. ``directives``: an operator's wishes about the source.
    ``view``: that of the task, if it is not the filter of the database.
    """

    source: DatabaseSet
    target: DatabaseServer
    name: str
    loaded: list[Loaded] = field(default_factory=list)
    report: Callable[[Loaded], object] = lambda _: None
    directives: Directives = field(default_factory=Directives)
    view: View | None = None

    def create(self) -> None:
        """The source's database, and an account with the rights of capture and load on each member."""
        grants = [
            *needed_grants(Role.SOURCE, self.source.flavour),
            *needed_grants(Role.LOAD, self.source.flavour, (self.name,)),
        ]
        self.source.execute(f"CREATE DATABASE {self.name}")
        for member in self.source.members:
            create_loader(member, grants)

    def remove(self) -> None:
        """Databases, account and state."""
        for member in self.source.members:
            sql.execute_unlogged(member.socket, [f"DROP USER '{LOADER.user}'@'%'"])
        self.source.execute(f"DROP DATABASE IF EXISTS {self.name}")
        self.target.execute(f"DROP DATABASE IF EXISTS {self.name}")
        for task in (self.name, side_of(self.name)):
            forget(task)
            for table in ("load_table", "load_chunk", "load_stream", "progress", "fence", "view"):
                self.target.execute(f"DELETE FROM millrace.{table} WHERE task = %s", (task,))

    def owner(self, epoch: int = 1) -> Owner:
        """A new run: the fence is raised."""
        session = connect(endpoint_of(self.target))
        try:
            create_tables(session)
            owner = raise_fence(session, task=self.name, epoch=epoch)
            await_statement(session, self.name)
            return owner
        finally:
            session.close()

    def load(
        self,
        copier: LocalCopier | None = None,
        *,
        rules: LoadRules | None = None,
        needed: GtidPosition | None = None,
        stop: threading.Event | None = None,
        owner: Owner | None = None,
    ) -> LoadStream | None:
        """One run of the load; of a new owner unless one is given."""
        self.source.wait_for_replicas()
        task = load_task(self.name, rules=rules, view=self.view)
        with closing(connect(endpoint_of(self.target))) as session:
            create_tables(session)
            task = loading(session, task)
        load = Load(
            task,
            self.origin(task, needed),
            Destination(endpoint_of(self.target), owner or self.owner()),
            copier or LocalCopier(),
            self._record,
        )
        return first_load(load, stop or threading.Event())

    def origin(self, task: ApplyTask, needed: GtidPosition | None = None) -> RowSource:
        """Where the rows come from."""
        capture = CaptureTask(
            name="capture",
            set_name="source",
            output=task.source,
            tables=TableFilter(include=(f"{self.name}.*",)),
        )
        document = source_document("source", self.source.members)
        return RowSource(document, capture, lambda: self.directives, needed)

    def load_again(self, *names: str) -> LoadStream | None:
        """A later load of these tables, up to the begin of its side stream."""
        self.source.wait_for_replicas()
        session = connect(endpoint_of(self.target))
        try:
            owner = raise_fence(session, task=side_of(self.name), epoch=1)
            set_waiting(session, self.name, [(self.name, name) for name in names], detail="again")
            session.query(
                "UPDATE millrace.load_table SET state = %s, batch = 1 WHERE task = %s AND state = %s",
                (COPIES, self.name, WAITS),
            )
            session.commit()
        finally:
            session.close()
        return self.later().load(owner, 1, threading.Event())

    def later(self) -> LaterLoad:
        """The later loads of the task."""
        task = load_task(self.name, view=self.view)
        return LaterLoad(task, lambda: self.origin(task), endpoint_of(self.target), LocalCopier())

    def run(self, copier: LocalCopier | None = None, *, rules: LoadRules | None = None) -> bool:
        """A start of the task up to its stream, as the runner makes it; whether it has loaded."""
        task = load_task(self.name, rules=rules, view=self.view)
        session = connect(endpoint_of(self.target))
        try:
            owner = owner_of(session, task, epoch=1)
            assert owner is not None
            is_loading = has_to_load(session, task)
            if is_loading:
                loaded = self.load(copier, rules=rules, owner=owner)
                assert loaded is not None
                end_load(session, task, owner, loaded)
            assert applier_of(session, endpoint_of(self.target), task, owner).is_partial
            return is_loading
        finally:
            session.close()

    def _record(self, loaded: Loaded) -> None:
        self.loaded.append(loaded)
        self.report(loaded)

    def tables(self) -> dict[TableKey, LoadTable]:
        """The stored state."""
        session = connect(endpoint_of(self.target))
        try:
            return read_tables(session, self.name)
        finally:
            session.close()

    def endpoint_of_source(self) -> Endpoint:
        """The primary with the account of a load."""
        return replace(endpoint_of(self.source.primary), user=LOADER.user, password=LOADER.password)
