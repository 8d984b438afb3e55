"""Invalid GTIDs are refused with a code; binary forms are those that servers wrote."""

import pytest

from millrace.errors import Fatal
from millrace.schemas.gtid import (
    Flavour,
    Gtid,
    GtidSet,
    History,
    MariadbGtid,
    MariadbGtidSet,
    missing,
    parse_binlog_state,
    parse_gtid_set,
)
from millrace.schemas.gtid.binary import decode_previous

UUID = "3e11fa47-71ca-11e1-9e33-c80aa9429562"

# MySQL 9.7.4: PREVIOUS_GTIDS of a file after tagged transactions; @@gtid_executed printed the text below.
TAGGED = bytes.fromhex(
    "0104000000000001"  # form 1, four sources
    "00000000000000000000000000000005" "00"  # uuid, no tag
    "0100000000000000" "0700000000000000" "0800000000000000"  # one interval [7, 8)
    "f4308642e59911f1954a02fc00000001" "00"
    "0100000000000000" "0100000000000000" "1300000000000000"
    "f4308642e59911f1954a02fc00000001" "08" "626c7565"  # tag of 4 bytes: blue
    "0100000000000000" "0100000000000000" "0200000000000000"
    "f4308642e59911f1954a02fc00000001" "06" "726564"
    "0100000000000000" "0100000000000000" "0200000000000000"
)  # fmt: skip
TAGGED_TEXT = (
    "00000000-0000-0000-0000-000000000005:7,f4308642-e599-11f1-954a-02fc00000001:1-18:blue:1:red:1"
)

# The same server before any tag.
UNTAGGED = bytes.fromhex(
    "0100000000000000"
    "f4308642e59911f1954a02fc00000001"
    "0100000000000000" "0100000000000000" "0d00000000000000"
)  # fmt: skip

# MariaDB 11.4.5: GTID_LIST after 0-2-22, and of the first file.
GTID_LIST = bytes.fromhex("01000000" "00000000" "02000000" "1600000000000000")  # fmt: skip
GTID_LIST_EMPTY = bytes.fromhex("00000000" "0000")  # fmt: skip


@pytest.mark.parametrize(
    ("flavour", "body", "text"),
    [
        (Flavour.MYSQL, TAGGED, TAGGED_TEXT),
        (Flavour.MYSQL, UNTAGGED, "f4308642-e599-11f1-954a-02fc00000001:1-12"),
        (Flavour.MYSQL, bytes(8), ""),
        (Flavour.MARIADB, GTID_LIST, "0-2-22"),
        (Flavour.MARIADB, GTID_LIST_EMPTY, ""),
    ],
)
def test_positions_in_binlog_files_are_read(flavour: Flavour, body: bytes, text: str) -> None:
    """The bodies are from servers, and the text is what they printed."""
    assert str(decode_previous(body, flavour=flavour)) == text


@pytest.mark.parametrize("flavour", list(Flavour))
@pytest.mark.parametrize("body", [TAGGED, UNTAGGED, GTID_LIST])
def test_truncated_and_padded_bodies_are_refused(flavour: Flavour, body: bytes) -> None:
    """Every length is checked: no prefix parses as a position, and no extra bytes are accepted."""
    right = GTID_LIST if flavour is Flavour.MARIADB else body
    for wrong in [*(right[:end] for end in range(len(right))), right + b"\0\0\0"]:
        with pytest.raises(Fatal, match="MR-6003"):
            decode_previous(wrong, flavour=flavour)


def test_last_entry_of_a_domain_is_its_position() -> None:
    """GTID_LIST has one entry for each server of a domain and ends with the newest, regardless of its sequence."""
    entry = GTID_LIST[4:]
    other = bytes.fromhex("00000000" "07000000" "1500000000000000")  # fmt: skip
    for entries, last in ((other + entry, "0-2-22"), (entry + other, "0-7-21")):
        body = bytes.fromhex("02000000") + entries
        assert str(decode_previous(body, flavour=Flavour.MARIADB)) == last


@pytest.mark.parametrize(
    ("found", "replaced"),
    [
        ("08626c7565", "09626c7565"),  # a length that is not one byte's
        ("08626c7565", "08ff6c7565"),  # not ASCII
        ("08626c7565", "42" + "61" * 33),  # too long
        ("0104000000000001", "0004000000000001"),  # the two flags of the form disagree
        ("0104000000000001", "0204000000000002"),  # an unknown form
        ("0800000000000000", "0700000000000000"),  # an empty interval
        ("0700000000000000", "0000000000000000"),  # number 0
    ],
)
def test_invalid_previous_gtids_are_refused(found: str, replaced: str) -> None:
    """Tags, forms and numbers that no server writes are refused."""
    wrong = TAGGED.hex().replace(found, replaced, 1)
    with pytest.raises(Fatal, match="MR-6003"):
        decode_previous(bytes.fromhex(wrong), flavour=Flavour.MYSQL)


@pytest.mark.parametrize(
    "text",
    [
        f"{UUID}",
        f"{UUID}:",
        f"{UUID}:0",
        f"{UUID}:5-3",
        f"{UUID}:1-2-3",
        f"{UUID}:blue",
        f"{UUID}:1:9x",
        f"{UUID}:9223372036854775807",
        f"{UUID}:99999999999999999999",
        "0-1-23",
        f"{UUID[:-1]}:1",
        f"{UUID}:1;2",
        f"{UUID}:{'a' * 33}:1",
    ],
)
def test_invalid_gtid_set_is_refused(text: str) -> None:
    """The code's fix explains where to get one."""
    with pytest.raises(Fatal, match="MR-6001"):
        GtidSet.parse(text)


@pytest.mark.parametrize("text", [f"{UUID}:1-2", f"{UUID}:1:3", "", "0-1-1"])
def test_single_gtid_parses_only_one_transaction(text: str) -> None:
    """Only a single transaction parses as one."""
    with pytest.raises(Fatal, match="MR-6001"):
        Gtid.parse(text)


@pytest.mark.parametrize(
    "text", ["0-1", "0-1-1,0-2-2", "0-1--1", "4294967296-1-1", "a-1-1", f"{UUID}:1"]
)
def test_invalid_mariadb_position_is_refused(text: str) -> None:
    """A repeated domain is refused too."""
    with pytest.raises(Fatal, match="MR-6001"):
        MariadbGtidSet.parse(text)


def test_decreasing_mariadb_sequence_is_refused() -> None:
    """A MariaDB source that reuses numbers must stop the task, not count as progress."""
    position = MariadbGtidSet.parse("0-1-5")
    for sequence in (4, 5):
        with pytest.raises(Fatal, match="MR-6002"):
            position.advanced(MariadbGtid(0, 2, sequence))


def test_positions_of_two_flavours_are_never_compared() -> None:
    """A comparison of positions of different flavours is a defect, not False."""
    mysql, mariadb = GtidSet.parse(f"{UUID}:1"), MariadbGtidSet.parse("0-1-5")
    for ask in (
        lambda: mysql.covers(MariadbGtid(0, 1, 1)),
        lambda: mariadb.covers(Gtid.parse(f"{UUID}:1")),
        lambda: mysql.includes(mariadb),
        lambda: mariadb.includes(mysql),
        lambda: mysql.advanced(MariadbGtid(0, 1, 1)),
        lambda: mariadb.advanced(Gtid.parse(f"{UUID}:1")),
    ):
        with pytest.raises(Fatal, match="MR-6001"):
            ask()


@pytest.mark.parametrize(
    ("wanted", "reached", "state", "brought", "gap"),
    [
        # one server
        ("0-1-7", "0-1-7", "0-1-7", "", ""),
        ("0-1-7", "0-1-9", "0-1-9", "", ""),
        ("0-1-7", "0-1-6", "0-1-9", "", "0-1-7"),
        ("0-1-7", "", "0-1-9", "", "0-1-7"),
        ("", "", "", "", ""),
        # a transaction that only a replica has: its number is unrelated to the primary's
        ("0-1-35889", "0-2-35890", "0-1-35889", "", "0-1-35889"),
        ("0-1-35889", "0-2-35889", "0-1-35889", "", "0-1-35889"),
        ("0-1-35889", "0-2-35890", "0-1-35891", "", "0-1-35889"),
        # the same, but the replica was once the primary: it wrote up to 0-2-300 then
        ("0-1-889", "0-2-890", "0-2-300,0-1-891", "", "0-1-889"),
        # after a failover to server 2, which had all of it, and back
        ("0-1-98", "0-2-105", "0-1-98,0-2-105", "", ""),
        ("0-2-105", "0-1-110", "0-1-110,0-2-105", "", ""),
        ("0-1-98", "0-1-110", "0-1-110,0-2-105", "", ""),
        # after a failover to server 2, which did not have all of it: 0-1-99 and 0-1-100 are lost
        ("0-1-100", "0-2-105", "0-1-98,0-2-105", "", "0-1-100"),
        ("0-1-100", "0-1-110", "0-1-98,0-2-105", "", "0-1-100"),
        # each domain is separate
        ("0-1-7,1-2-5", "0-1-7,1-2-5", "0-1-7,1-2-5", "", ""),
        ("0-1-7,1-2-5", "0-1-7", "0-1-7,1-2-5", "", "1-2-5"),
        ("0-1-7,1-2-5", "0-1-8,1-3-6", "0-1-8,1-2-5", "", "1-2-5"),
        ("0-1-7,1-2-5", "0-1-6,1-3-6", "0-1-8,1-2-5", "", "0-1-7,1-2-5"),
        ("0-1-7", "0-1-7,5-9-1", "0-1-7", "", ""),  # a domain that only the replica has
        # transactions that the primary got with a backup and never logged
        ("0-3-50", "0-3-50", "", "0-3-50", ""),
        ("0-3-50", "0-1-51", "0-1-51", "0-3-50", ""),
        ("0-3-50", "0-1-52", "0-1-51", "0-3-50", "0-3-50"),
        ("0-3-50", "0-1-51", "0-1-51", "0-3-49", "0-3-50"),
    ],
)
def test_position_counts_as_reached_when_the_primary_proves_it(
    wanted: str, reached: str, state: str, brought: str, gap: str
) -> None:
    """Numbers are not enough: the primary logged the wanted GTID and, after it, the last one reached."""
    positions = [MariadbGtidSet.parse(text) for text in (wanted, reached, brought)]
    history = History(positions[0], parse_binlog_state(state), positions[2])
    assert missing(positions[0], positions[1], history) == gap


def test_mysql_gtid_sets_need_no_proof_by_the_server() -> None:
    """They name each transaction, so the server need not be asked."""
    wanted = parse_gtid_set(Flavour.MYSQL, f"{UUID}:1-7")
    for reached, gap in (
        (f"{UUID}:1-9", ""),
        (f"{UUID}:1-5:7-9", f"{UUID}:6"),
        ("", f"{UUID}:1-7"),
    ):
        found = missing(wanted, parse_gtid_set(Flavour.MYSQL, reached), History(wanted))
        assert found == gap
