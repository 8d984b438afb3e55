"""Which member of a source set a load reads."""

from typing import cast

import pytest

from drivers.mysql.connection import Endpoint, MySqlSession
from drivers.mysql.members import Candidate, Replication, Wanted, choose, why_not
from drivers.mysql.snapshot_position import begin_snapshot, read_begin, read_end
from millrace.errors import Retryable
from schemas.documents import Directives, Member
from schemas.gtid import Flavour, GtidSet, History, MariadbGtidSet

UUID = "3e11fa47-71ca-11e1-9e33-c80aa9429562"
OTHER = "4e11fa47-71ca-11e1-9e33-c80aa9429562"


def _member(
    name: str, *, numbers: str = "1-9", lag_s: float | None = 0.0, **more: object
) -> Candidate:
    replications = (Replication(lag_s, str(more.get("error", "")), bool(more.get("filtered"))),)
    return Candidate(
        Endpoint(name, 3306, "u", "p"),
        GtidSet.parse(f"{UUID}:{numbers}{more.get('errant', '')}"),
        logs=bool(more.get("logs", True)),
        replications=replications,
    )


PRIMARY = Candidate(
    Endpoint("db1", 3306, "u", "p"), GtidSet.parse(f"{UUID}:1-10"), logs=True, is_writable=True
)
HISTORY = History(GtidSet.parse(f"{UUID}:1-10"))


def test_replica_with_the_lowest_lag_is_read() -> None:
    """The primary has none, and is not read although it is first."""
    found = [PRIMARY, _member("db2", lag_s=4.0), _member("db3", lag_s=1.0)]
    assert choose("shop", found, Wanted(primary=HISTORY), {}).name == "db3:3306"
    allowed = Wanted(primary=HISTORY, from_primary=True)
    assert choose("shop", found, allowed, {}).name == "db1:3306"
    assert choose("shop", [PRIMARY], Wanted(is_alone=True), {}).name == "db1:3306"


def test_wishes_of_an_operator_are_obeyed() -> None:
    """A pinned member is read whatever its lag, if it is admissible; a drained one never is."""
    found = [PRIMARY, _member("db2", lag_s=4.0), _member("db3", lag_s=1.0)]

    def chosen(*drained: str, pinned: str = "", from_primary: bool = False) -> str:
        wishes = Directives(
            pinned=Member(pinned, 3306), drained=frozenset(Member(each, 3306) for each in drained)
        )
        wanted = Wanted(primary=HISTORY, directives=wishes, from_primary=from_primary)
        return choose("shop", found, wanted, {}).name

    assert chosen(pinned="db2") == "db2:3306"
    assert chosen(pinned="db1") == "db3:3306"
    assert chosen("db3") == "db2:3306"
    assert chosen("db1", "db3", from_primary=True) == "db2:3306"
    assert chosen("db2", pinned="db2") == "db3:3306"
    with pytest.raises(Retryable, match=r"an operator drained it \(`millrace replica undrain SET"):
        chosen("db2", "db3")


@pytest.mark.parametrize(
    ("member", "why"),
    [
        (_member("r", lag_s=None, error="Duplicate entry"), "does not replicate: Duplicate entry"),
        (_member("r", lag_s=None), "it does not replicate"),
        (_member("r", filtered=True), "it has replication filters"),
        (_member("r", logs=False), "it does not log what it replicates"),
        (_member("r", numbers="1-4"), f"it does not have {UUID}:5-6 yet"),
        (_member("r", errant=f",{OTHER}:1"), f"it has {OTHER}:1, which the primary does not have"),
        (PRIMARY, "it is the primary"),
    ],
)
def test_unusable_member_is_named_with_the_reason(member: Candidate, why: str) -> None:
    """Each reason, and that of a member that does not answer."""
    wanted = Wanted(needed=GtidSet.parse(f"{UUID}:1-6"), primary=HISTORY)
    assert why in why_not(member, wanted)
    with pytest.raises(Retryable) as caught:
        choose("shop", [member], wanted, {"db9:3306": "it is away"})
    assert caught.value.code == "MR-5090"
    assert why in caught.value.message
    assert "db9:3306: it is away" in caught.value.message


def test_member_of_another_flavour_is_not_read() -> None:
    """Positions of two flavours can't be compared."""
    assert (
        why_not(_member("r"), Wanted(needed=MariadbGtidSet.parse("0-1-5")))
        == "it is a mysql server"
    )


def test_owned_gtids_are_read_without_their_threads() -> None:
    """As MySQL prints them, with tags and several servers."""
    text = f"{UUID}:5#20:6#21,\n{OTHER}:blue:7#4"
    assert GtidSet.parse_owned(text) == GtidSet.parse(f"{UUID}:5-6,{OTHER}:blue:7")
    assert GtidSet.parse_owned("") == GtidSet()


class _Answering:
    """A session on MariaDB whose snapshot is at a place of a binlog file that is gone."""

    flavour = Flavour.MARIADB

    def query(self, sql: str, _: object = None) -> list[tuple[object, ...]]:
        """The answers of a server after a purge."""
        if sql.startswith("SHOW STATUS"):
            names = ("Binlog_snapshot_file", "Binlog_snapshot_position")
            return list(zip(names, ("bin.000001", "9"), strict=True))
        return [(None,)]

    def rollback(self) -> None:
        """Nothing is open."""


def test_snapshot_without_its_binlog_file_is_tried_again() -> None:
    """The server can't name the GTIDs of a place in a file that was purged."""
    with pytest.raises(Retryable, match=r"bin\.000001 at 9") as caught:
        begin_snapshot(cast("MySqlSession", _Answering()))
    assert caught.value.code == "MR-5093"


class _Session:
    """A session on a server with these values. ``asked``: the variables in the order of the questions."""

    def __init__(self, flavour: Flavour, **values: str) -> None:
        self.flavour = flavour
        self.asked: list[str] = []
        self._values = values

    def query(self, sql: str, _: object = None) -> list[tuple[object, ...]]:
        """The value of a variable, or the place of a snapshot."""
        if sql.startswith("SELECT @@global."):
            self.asked.append(sql.removeprefix("SELECT @@global."))
            return [(self._values[self.asked[-1]],)]
        if sql.startswith("SHOW STATUS"):
            return [("binlog_snapshot_file", "bin.000001"), ("binlog_snapshot_position", "9")]
        return [(self._values["snapshot"],)] if "BINLOG_GTID_POS" in sql else []

    def rollback(self) -> None:
        """Nothing is open."""


def test_end_has_transactions_that_are_visible_and_not_executed_yet() -> None:
    """MySQL: what is owned, asked first, so that a transaction that becomes executed in between is in one of them."""
    session = _Session(Flavour.MYSQL, gtid_owned=f"{UUID}:6#20", gtid_executed=f"{UUID}:1-5")
    assert read_end(cast("MySqlSession", session)) == GtidSet.parse(f"{UUID}:1-6")
    assert session.asked == ["gtid_owned", "gtid_executed"]


def test_begin_has_only_transactions_that_are_visible() -> None:
    """MariaDB logs a transaction before it is visible, so the place of a snapshot counts, not the end of the binlog."""
    session = _Session(
        Flavour.MARIADB, gtid_slave_pos="", gtid_binlog_pos="0-1-9", snapshot="0-1-7"
    )
    assert read_begin(cast("MySqlSession", session)) == MariadbGtidSet.parse("0-1-7")
    assert read_end(cast("MySqlSession", session)) == MariadbGtidSet.parse("0-1-9")
