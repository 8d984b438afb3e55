"""Which member of a source set a load reads."""

from typing import cast

import pytest

from millrace.consumer.load.source import Wanted, choose, why_not
from millrace.drivers.mysql.connection import MySqlSession
from millrace.drivers.mysql.members import Identity, MemberBinlog, MemberFacts, Replication
from millrace.drivers.mysql.snapshot_position import begin_snapshot, read_begin, read_end
from millrace.errors import Retryable
from millrace.schemas.documents import Directives, Member
from millrace.schemas.gtid import Flavour, GtidSet, MariadbGtidSet
from tests.kit.capture.recorded import SETTINGS

UUID = "3e11fa47-71ca-11e1-9e33-c80aa9429562"
OTHER = "4e11fa47-71ca-11e1-9e33-c80aa9429562"


def _facts(name: str, numbers: str, *replications: Replication, **variables: str) -> MemberFacts:
    return MemberFacts(
        Member(name, 3306),
        identity=Identity(Flavour.MYSQL, name, "9.7.0"),
        variables={**SETTINGS, "log_replica_updates": "ON", "read_only": "OFF", **variables},
        replications=replications,
        binlog=MemberBinlog(GtidSet.parse(f"{UUID}:{numbers}"), GtidSet()),
    )


def _replica(
    name: str, numbers: str = "1-9", *, lag_s: float | None = 0.0, **variables: str
) -> MemberFacts:
    return _facts(name, numbers, Replication(lag_s), **variables)


PRIMARY = _facts("db1", "1-10")
HISTORY = PRIMARY.binlog


def test_replica_with_the_lowest_lag_is_read() -> None:
    """The primary has none, and is not read although it is first."""
    facts = [PRIMARY, _replica("db2", lag_s=4.0), _replica("db3", lag_s=1.0)]
    assert choose("shop", facts, Wanted(primary=HISTORY)).member.host == "db3"
    allowed = Wanted(primary=HISTORY, from_primary=True)
    assert choose("shop", facts, allowed).member.host == "db1"
    assert choose("shop", [PRIMARY], Wanted(is_alone=True)).member.host == "db1"


def test_wishes_of_an_operator_are_obeyed() -> None:
    """A pinned member is read whatever its lag, if it is admissible; a drained one never is."""
    facts = [PRIMARY, _replica("db2", lag_s=4.0), _replica("db3", lag_s=1.0)]

    def chosen(*drained: str, pinned: str = "", from_primary: bool = False) -> str:
        wishes = Directives(
            pinned=Member(pinned, 3306), drained=frozenset(Member(each, 3306) for each in drained)
        )
        wanted = Wanted(primary=HISTORY, directives=wishes, from_primary=from_primary)
        return choose("shop", facts, wanted).member.host

    assert chosen(pinned="db2") == "db2"
    assert chosen(pinned="db1") == "db3"
    assert chosen("db3") == "db2"
    assert chosen("db1", "db3", from_primary=True) == "db2"
    assert chosen("db2", pinned="db2") == "db3"
    with pytest.raises(Retryable, match=r"an operator drained it \(`millrace replica undrain SET"):
        chosen("db2", "db3")


UNORDERED = {"replica_preserve_commit_order": "OFF", "replica_parallel_workers": "4"}
STOPPED = Replication(None, stopped=("its SQL thread is stopped (Duplicate entry)",))
AWAY = MemberFacts(Member("db9", 3306), error=Retryable("MR-5001", "it is away"))


@pytest.mark.parametrize(
    ("member", "why"),
    [
        (_facts("r", "1-9", STOPPED), "does not replicate: its SQL thread is stopped (Dupl"),
        (_replica("r", lag_s=None), "it does not replicate"),
        (_facts("r", "1-9", Replication(0.0, ("Replicate_Do_DB=a",))), "MR-1018 "),
        (_replica("r", log_replica_updates="OFF"), "MR-1011 "),
        (_replica("r", log_bin="OFF"), "MR-1010 "),
        (_replica("r", gtid_mode="OFF"), "MR-1016 "),
        (_facts("r", "1-9", Replication(0.0), **UNORDERED), "MR-1022 "),
        (_replica("r", "1-4"), f"it does not have {UUID}:5-6 yet"),
        (_replica("r", f"1-9,{OTHER}:1"), f"it has {OTHER}:1, which the primary does not have"),
        (PRIMARY, "it is the primary"),
    ],
)
def test_unusable_member_is_named_with_the_reason(member: MemberFacts, why: str) -> None:
    """Each reason, and that of a member that does not answer."""
    wanted = Wanted(needed=GtidSet.parse(f"{UUID}:1-6"), primary=HISTORY)
    assert why in why_not(member, wanted)
    with pytest.raises(Retryable) as caught:
        choose("shop", [member, AWAY], wanted)
    assert caught.value.code == "MR-5090"
    assert why in caught.value.message
    assert "db9:3306: it is away" in caught.value.message


def test_format_of_binlog_rows_hinders_no_load() -> None:
    """Only capture reads them."""
    formats = {"binlog_format": "MIXED", "binlog_row_image": "MINIMAL", "binlog_checksum": "NONE"}
    assert why_not(_facts("r", "1-9", Replication(0.0), **formats), Wanted(primary=HISTORY)) == ""


def test_member_of_another_flavour_is_not_read() -> None:
    """Positions of two flavours can't be compared."""
    wanted = Wanted(needed=MariadbGtidSet.parse("0-1-5"))
    assert why_not(_replica("r"), wanted) == "it is a mysql server"


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
