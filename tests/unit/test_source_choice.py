"""The choice of a member and the check of settings are pure, on constructed answers."""

from dataclasses import replace
from typing import Never

import pytest

from millrace.drivers.mysql.members import (
    Identity,
    MemberBinlog,
    MemberFacts,
    Replication,
    ask_member,
    find_errant,
)
from millrace.drivers.mysql.preflight import check_settings
from millrace.errors import Fatal, MillraceError, Retryable
from millrace.producer.source.choose import chooser
from millrace.producer.source.choose.choice import (
    LAG_TRANSACTIONS_MAX,
    Preferences,
    choose,
    count_missing,
)
from millrace.producer.source.choose.chooser import ask_flavour
from millrace.producer.source.connection import Login
from millrace.schemas.documents import Directives, Member, Tls, TlsMode
from millrace.schemas.gtid import Flavour, parse_binlog_state, parse_gtid_set
from tests.kit.capture.recorded import SETTINGS, VERSIONS, RecordedServer

UUID = "3e11fa47-71ca-11e1-9e33-c80aa9429562"
OTHER = "4e11fa47-71ca-11e1-9e33-c80aa9429562"
GOOD = {**SETTINGS, "log_replica_updates": "ON"}


def gtids(text: str, flavour: Flavour = Flavour.MYSQL):  # type: ignore[no-untyped-def]
    """Return a position."""
    return parse_gtid_set(flavour, text)


def member(
    number: int,
    position: str,
    *,
    replica: bool = True,
    seconds: float | None = 0.0,
    before: str = "",
) -> MemberFacts:
    """Return a MySQL member that answered."""
    return MemberFacts(
        Member("db", number),
        identity=Identity(Flavour.MYSQL, f"server-{number}", "9.7.0"),
        variables=GOOD,
        replications=(Replication(seconds),) if replica else (),
        binlog=MemberBinlog(gtids(position), gtids(before)),
    )


PRIMARY = member(1, f"{UUID}:1-5000", replica=False)
WANTED = gtids(f"{UUID}:1-10")


@pytest.mark.parametrize(
    ("facts", "chosen"),
    [
        ([PRIMARY, member(2, f"{UUID}:1-5000"), member(3, f"{UUID}:1-4990")], 2),
        ([PRIMARY, member(2, f"{UUID}:1-4990"), member(3, f"{UUID}:1-4995")], 3),
        (
            [
                PRIMARY,
                member(2, f"{UUID}:1-4990", seconds=9),
                member(3, f"{UUID}:1-4990", seconds=1),
            ],
            3,
        ),
        ([PRIMARY, member(2, f"{UUID}:1-4990", seconds=None), member(3, f"{UUID}:1-4990")], 3),
        ([PRIMARY, member(2, f"{UUID}:1-{5000 - LAG_TRANSACTIONS_MAX}")], 2),
        ([PRIMARY, member(2, f"{UUID}:1-{4999 - LAG_TRANSACTIONS_MAX}")], 1),
        ([member(2, f"{UUID}:1-20"), member(3, f"{UUID}:1-4000")], 3),
        ([PRIMARY, member(2, f"{UUID}:1-5000,{OTHER}:1")], 1),
    ],
    ids=[
        "a caught-up replica rather than the primary",
        "the replica that misses least",
        "seconds break a tie",
        "unknown seconds are worst",
        "a replica with a small lag rather than the primary",
        "the primary when replicas are far behind",
        "the best replica while the primary is away",
        "not a member with errant transactions",
    ],
)
def test_member_with_the_lowest_lag_is_chosen(facts: list[MemberFacts], chosen: int) -> None:
    """The order of the members does not matter."""
    for ordered in (facts, facts[::-1]):
        assert choose(ordered, wanted=WANTED).member.port == chosen


def test_choice_gives_a_reason_for_every_member() -> None:
    """`millrace status` prints the reasons."""
    away = MemberFacts(Member("db", 9), error=Retryable("MR-1001", "db:9: refused"))
    errant = member(2, f"{UUID}:1-5000,{OTHER}:1")
    reasons = choose([errant, away, PRIMARY], wanted=WANTED).reasons()
    assert list(reasons) == ["db:1", "db:2", "db:9"]
    assert reasons["db:1"].startswith("chosen: db:1 (primary, 0 transactions behind)")
    assert f"MR-1032 it has {OTHER}:1" in reasons["db:2"]
    assert "MR-1001" in reasons["db:9"]


def test_start_at_the_first_binlog_needs_a_member_with_it() -> None:
    """A replica whose binlog begins later would silently omit the beginning."""
    late = member(2, f"{UUID}:1-5000", before=f"{UUID}:1-7")
    assert choose([PRIMARY, late], wanted=None).member.port == 1
    assert choose([PRIMARY, late], wanted=WANTED).member.port == 2


def test_purged_transactions_exclude_a_member() -> None:
    """Its finding lists the missing ones."""
    error = Fatal("MR-1031", f"db:2 purged {UUID}:11-20")
    purged = member(2, f"{UUID}:1-5000")
    assert purged.binlog is not None
    purged = replace(purged, binlog=replace(purged.binlog, wanted_error=error))
    assert choose([PRIMARY, purged], wanted=WANTED).member.port == 1
    with pytest.raises(Fatal) as caught:
        choose([purged], wanted=WANTED)
    assert caught.value.code == "MR-1031"


def interrupted(facts: MemberFacts, code: str = "MR-1001") -> MemberFacts:
    """Return a member that answered everything but the place of the first wanted transaction."""
    assert facts.binlog is not None
    error = Retryable(code, f"{facts.member}: Query execution was interrupted")
    return replace(facts, binlog=replace(facts.binlog, wanted_error=error))


@pytest.mark.parametrize("code", ["MR-1001", "MR-1040"])
def test_temporarily_refusing_member_is_asked_again(code: str) -> None:
    """Alone it is awaited, beside others it is excluded; its other answers still count."""
    with pytest.raises(Retryable) as caught:
        choose([interrupted(PRIMARY, code)], wanted=WANTED)
    assert caught.value.code == code
    good, errant = member(2, f"{UUID}:1-5000"), member(2, f"{UUID}:1-5000,{OTHER}:1")
    assert choose([interrupted(PRIMARY, code), good], wanted=WANTED).member == good.member
    assert choose([PRIMARY, interrupted(good, code)], wanted=WANTED).member == PRIMARY.member
    with pytest.raises(Retryable) as caught:
        choose([interrupted(PRIMARY, code), errant], wanted=WANTED)
    assert caught.value.code == "MR-1030"
    assert "MR-1032" in caught.value.message


def test_temporary_refusal_hides_no_permanent_problem() -> None:
    """Its settings would exclude it at the next try too."""
    bad = replace(interrupted(PRIMARY), variables={**GOOD, "binlog_row_metadata": "MINIMAL"})
    with pytest.raises(Fatal) as caught:
        choose([bad], wanted=WANTED)
    assert caught.value.code == "MR-1014"


def test_primary_that_lost_published_transactions_stops_the_task() -> None:
    """Its numbers would be reused for other transactions."""
    with pytest.raises(Fatal) as caught:
        choose([PRIMARY, member(2, f"{UUID}:1-5000")], wanted=gtids(f"{UUID}:1-5001"))
    assert caught.value.code == "MR-1033"


@pytest.mark.parametrize(
    ("error", "kind"),
    [(Retryable("MR-1001", "away"), Retryable), (Fatal("MR-1002", "wrong password"), Fatal)],
)
def test_without_admissible_members_only_temporary_causes_wait(
    error: MillraceError, kind: type[MillraceError]
) -> None:
    """One cause for all keeps its code; several are summarized."""
    with pytest.raises(kind) as caught:
        choose(
            [MemberFacts(Member("db", 1), error=error), MemberFacts(Member("db", 2), error=error)],
            wanted=None,
        )
    assert caught.value.code == error.code
    bad = replace(PRIMARY, variables={**GOOD, "binlog_row_metadata": "MINIMAL"})
    with pytest.raises(kind) as caught:
        choose([MemberFacts(Member("db", 2), error=error), bad], wanted=None)
    assert caught.value.code == "MR-1030"
    assert "MR-1014" in caught.value.message


def test_fix_covers_every_finding() -> None:
    """Four wrong settings give four statements, each once, with their members where they differ."""
    worse = {"binlog_format": "MIXED", "binlog_row_image": "MINIMAL", "binlog_checksum": "NONE"}
    bad = replace(PRIMARY, variables={**GOOD, **worse, "binlog_row_metadata": "MINIMAL"})
    with pytest.raises(Fatal) as caught:
        choose([bad], wanted=None)
    wanted = [
        "SET GLOBAL binlog_checksum = 'CRC32';",
        "SET GLOBAL binlog_format = 'ROW';",
        "SET GLOBAL binlog_row_image = 'FULL';",
        "SET GLOBAL binlog_row_metadata = 'FULL';",
    ]
    assert all(statement in caught.value.fix for statement in wanted)
    assert caught.value.fix.count("in the server's configuration") == 1
    other = replace(
        member(2, f"{UUID}:1-5000"), variables={**GOOD, "binlog_row_metadata": "MINIMAL"}
    )
    with pytest.raises(Fatal) as caught:
        choose([bad, other], wanted=None)
    assert f"on {bad.member}: SET GLOBAL binlog_format" in caught.value.fix
    assert f"on {bad.member}, {other.member}: SET GLOBAL binlog_row_metadata" in caught.value.fix


def test_mixed_sets_are_refused_but_two_primaries_may_pass() -> None:
    """A mixed set has no common history; but seconds into a switchover no member replicates, and that passes."""
    mariadb = replace(PRIMARY, identity=Identity(Flavour.MARIADB, "0-1", "11.4.5-MariaDB"))
    with pytest.raises(Fatal) as mixed:
        choose([PRIMARY, mariadb], wanted=None)
    assert mixed.value.code == "MR-1020"
    with pytest.raises(Retryable) as two:
        choose([PRIMARY, replace(PRIMARY, member=Member("db", 2))], wanted=None)
    assert two.value.code == "MR-1030"
    assert "switchover" in two.value.fix


def test_unknown_flavour_waits_while_a_member_may_return(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A replica that permanently refuses the account does not block a task whose primary only restarts."""
    login = Login(user="millrace", password="", tls=Tls(TlsMode.DISABLED))
    primary, replica = Member("db", 1), Member("db", 2)
    away, refused = Retryable("MR-1001", "db:1: refused"), Fatal("MR-1002", "db:2 refuses")
    for of_primary, of_replica, error in (
        (away, refused, away),
        (refused, away, away),
        (refused, refused, refused),
    ):
        errors: dict[Member, MillraceError] = {primary: of_primary, replica: of_replica}

        def refuse(
            member: Member, login: Login, errors: dict[Member, MillraceError] = errors
        ) -> Never:
            raise errors[member]

        monkeypatch.setattr(chooser, "connect_member", refuse)
        with pytest.raises(MillraceError) as caught:
            ask_flavour((primary, replica), login)
        assert caught.value is error


def test_mariadb_positions_are_compared_by_domain() -> None:
    """Missing sequences are counted; one beyond the primary's, or another server's in its place, is errant."""
    primary = mariadb("0-1-100,1-1-50", state="0-3-80,0-1-100,1-1-50")
    assert count_missing(primary.position, gtids("0-1-90", Flavour.MARIADB)) == 60
    for text, errant in (
        ("0-1-90", ""),
        ("0-3-80", ""),
        ("0-2-101", "0-2-101"),
        ("0-2-100", "0-2-100"),
        ("7-1-1", "7-1-1"),
        ("0-2-90,1-1-50", "0-2-90"),
        ("0-3-81", "0-3-81"),
    ):
        assert find_errant(gtids(text, Flavour.MARIADB), primary) == errant
    rebuilt = mariadb("0-1-100", state="0-1-100", before="0-4-90")
    assert find_errant(gtids("0-2-90", Flavour.MARIADB), rebuilt) == ""  # this cannot be known
    assert find_errant(gtids("0-2-91", Flavour.MARIADB), rebuilt) == "0-2-91"


def mariadb(position: str, *, state: str, before: str = "") -> MemberBinlog:
    """Return the answers of a MariaDB."""
    known, earlier = gtids(position, Flavour.MARIADB), gtids(before, Flavour.MARIADB)
    return MemberBinlog(known, earlier, None, parse_binlog_state(state))


@pytest.mark.parametrize(
    ("name", "value", "code", "statement"),
    [
        ("log_bin", "OFF", "MR-1010", "log_bin=mysql-bin"),
        ("log_replica_updates", "OFF", "MR-1011", "`log_replica_updates=ON`"),
        ("binlog_format", "MIXED", "MR-1012", "SET GLOBAL binlog_format = 'ROW';"),
        ("binlog_row_image", "MINIMAL", "MR-1013", "SET GLOBAL binlog_row_image = 'FULL';"),
        ("binlog_row_metadata", "MINIMAL", "MR-1014", "SET GLOBAL binlog_row_metadata = 'FULL';"),
        (
            "binlog_row_value_options",
            "PARTIAL_JSON",
            "MR-1015",
            "SET GLOBAL binlog_row_value_options = '';",
        ),
        ("gtid_mode", "ON_PERMISSIVE", "MR-1016", "SET GLOBAL gtid_mode = 'ON';"),
        ("binlog_checksum", "NONE", "MR-1019", "SET GLOBAL binlog_checksum = 'CRC32';"),
    ],
)
def test_setting_that_hides_changes_is_reported_with_its_fix(
    name: str, value: str, code: str, statement: str
) -> None:
    """A wrong setting gives one finding, a good server none."""
    facts = member(2, f"{UUID}:1")
    assert check_settings(facts) == ()
    (finding,) = check_settings(replace(facts, variables={**GOOD, name: value}))
    assert finding.code == code
    assert statement in finding.fix


def test_filters_and_non_strict_mariadb_gtids_are_reported() -> None:
    """Settings that exist only in the other flavour are not reported."""
    facts = replace(member(2, ""), replications=(Replication(0, ("Replicate_Do_DB=shop",)),))
    (finding,) = check_settings(facts)
    assert finding.code == "MR-1018"
    assert "Replicate_Do_DB=shop" in finding.message
    mariadb = replace(
        member(2, ""),
        identity=Identity(Flavour.MARIADB, "0-1", "11.4.5-MariaDB"),
        variables={"log_bin": "ON", "log_slave_updates": "OFF", "gtid_strict_mode": "OFF"},
    )
    assert [finding.code for finding in check_settings(mariadb)] == ["MR-1011", "MR-1017"]


def test_avoided_member_is_used_only_as_a_last_resort() -> None:
    """Its rows of an open source transaction differed: the next best member is tried, the primary too."""
    best, next_best = member(2, f"{UUID}:1-5000"), member(3, f"{UUID}:1-4990")
    facts = [PRIMARY, best, next_best]
    assert (
        choose(facts, wanted=WANTED, preferences=Preferences(avoided={best.member})).member
        == next_best.member
    )
    both = {best.member, next_best.member}
    assert (
        choose(facts, wanted=WANTED, preferences=Preferences(avoided=both)).member == PRIMARY.member
    )
    everybody = {fact.member for fact in facts}
    assert (
        choose(facts, wanted=WANTED, preferences=Preferences(avoided=everybody)).member
        == best.member
    )


@pytest.mark.parametrize("version", VERSIONS)
def test_mysql_replica_of_any_supported_version_is_accepted(version: str) -> None:
    """Each version is asked with statements it knows; the answers come from its manual, not from a running server."""
    facts = ask_member(RecordedServer(version).connection, Member("db", 3306))
    assert [one.lag_s for one in facts.replications] == [3.0]
    choice = choose([facts], wanted=None)
    assert choice.member == facts.member
    assert choice.verdicts[0].role == "replica"


@pytest.mark.parametrize(
    ("version", "name", "statement"),
    [
        (
            "8.0.21",
            "slave_preserve_commit_order",
            "STOP SLAVE SQL_THREAD; SET GLOBAL slave_preserve_commit_order = ON; START SLAVE SQL_THREAD;",
        ),
        (
            "8.4.0",
            "replica_preserve_commit_order",
            "STOP REPLICA SQL_THREAD; SET GLOBAL replica_preserve_commit_order = ON; START REPLICA SQL_THREAD;",
        ),
    ],
)
def test_mysql_replica_that_commits_out_of_order_is_refused(
    version: str, name: str, statement: str
) -> None:
    """Its binlog has an order that differs from other members'. A single worker keeps the order."""
    facts = ask_member(RecordedServer(version, **{name: "OFF"}).connection, Member("db", 3306))
    with pytest.raises(Fatal) as caught:
        choose([facts], wanted=None)
    assert caught.value.code == "MR-1022"
    assert statement in caught.value.fix
    workers = name.replace("preserve_commit_order", "parallel_workers")
    alone = RecordedServer(version, **{name: "OFF", workers: "1"})
    for admissible in (
        ask_member(alone.connection, Member("db", 3306)),
        replace(facts, replications=()),
    ):
        assert choose([admissible], wanted=None).member == facts.member


@pytest.mark.parametrize("version", ["5.7.44-log", "10.4.34-MariaDB"])
def test_server_without_column_names_in_its_binlog_is_refused(version: str) -> None:
    """It is refused before it is read: its first table map would stop the task."""
    flavour = Flavour.MARIADB if "MariaDB" in version else Flavour.MYSQL
    facts = replace(PRIMARY, identity=Identity(flavour, "server", version))
    with pytest.raises(Fatal) as caught:
        choose([facts], wanted=None)
    assert caught.value.code == "MR-1023"
    assert version in caught.value.message


def test_drained_member_is_not_chosen() -> None:
    """An operator's drain excludes it, even if it is the best or the only one; a pin is preferred to a lower lag."""
    best, next_best = member(2, f"{UUID}:1-5000"), member(3, f"{UUID}:1-4990")
    drained = Preferences(directives=Directives(drained=frozenset({best.member})))
    facts = [PRIMARY, best, next_best]
    assert choose(facts, wanted=WANTED, preferences=drained).member == next_best.member
    with pytest.raises(Retryable, match="MR-1035"):
        choose([best], wanted=WANTED, preferences=drained)
    pinned = Preferences(directives=Directives(pinned=PRIMARY.member))
    assert choose(facts, wanted=WANTED, preferences=pinned).member == PRIMARY.member
    late = Preferences(late={best.member})
    assert choose(facts, wanted=WANTED, preferences=late).member == next_best.member


def test_live_stream_never_goes_back() -> None:
    """A member without the end of the relay log is refused while a stream runs; the message names what is absent."""
    behind = member(2, f"{UUID}:1-4990")
    end = gtids(f"{UUID}:1-4995")
    assert choose([PRIMARY, behind], wanted=end).member == behind.member
    assert choose([PRIMARY, behind], wanted=end, is_live=True).member == PRIMARY.member
    away = replace(PRIMARY, error=Retryable("MR-1001", "away"))
    with pytest.raises(Retryable, match=f"MR-1036.*{UUID}:4991-4995"):
        choose([away, behind], wanted=end, is_live=True)
