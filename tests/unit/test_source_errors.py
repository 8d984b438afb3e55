"""Every text with which servers of both flavours end a dump has its branch and code."""

from typing import cast
from unittest import mock

import pymysql
import pytest

from millrace.drivers.mysql.connection import Endpoint, MySqlSession, NamedRow
from millrace.drivers.mysql.dump_errors import decode_error_packet, explain_dump_error
from millrace.drivers.mysql.errors import CAPTURE_CODES
from millrace.drivers.mysql.start_file import binlog_events, parse_gtid_list
from millrace.errors import Fatal, Fenced, MillraceError, Retryable
from millrace.producer.source.receive.dump import (
    HOST,
    ReplicaIdentity,
    ask_replica_ids,
    dump_payload,
    register_payload,
)
from millrace.schemas.documents.model import Member
from millrace.schemas.server_version import ServerVersion

HERE = Member("db", 3306)


@pytest.mark.parametrize(
    ("text", "kind", "code"),
    [
        ("Could not find first log file name in binary log index file", Retryable, "MR-1040"),
        ("could not find next log; the first event 'mysql-bin.000001' at 4", Retryable, "MR-1040"),
        (
            "Client requested source to start replication from position > file size",
            Retryable,
            "MR-1041",
        ),
        (
            "Client requested master to start replication from impossible position < 4; position < 4",
            Retryable,
            "MR-1041",
        ),
        (
            "bogus data in log event; the first event 'mysql-bin.000001' at 130",
            Retryable,
            "MR-1041",
        ),
        (
            "A replica with the same server_uuid/server_id as this replica has connected to the source;"
            " the first event 'mysql-bin.000001' at 4, the last event read from './mysql-bin.000001' at 157",
            Fenced,
            "MR-1042",
        ),
        (
            "A slave with the same server_uuid/server_id as this slave has connected to the master",
            Fenced,
            "MR-1042",
        ),
        (
            "binlog truncated in the middle of event; consider out of disk space on source",
            Fatal,
            "MR-1043",
        ),
        ("event read from binlog did not pass crc check", Fatal, "MR-1043"),
        ("I/O error reading log event", Fatal, "MR-1043"),
        (
            "log event entry exceeded max_allowed_packet; Increase max_allowed_packet on source",
            Fatal,
            "MR-1044",
        ),
        ("Cannot replicate because the source purged required binary logs.", Fatal, "MR-1031"),
        (
            "Replica can not handle replication events with the checksum that source is configured to log",
            Fatal,
            "MR-1019",
        ),
        ("Binary log is not open", Fatal, "MR-1010"),
        ("something that a later version says", Retryable, "MR-1045"),
    ],
)
def test_error_1236_is_classified_by_its_text(
    text: str, kind: type[MillraceError], code: str
) -> None:
    """The message contains the server's words."""
    error = explain_dump_error(1236, text, HERE)
    assert type(error) is kind
    assert error.code == code
    assert text in error.message


@pytest.mark.parametrize(
    ("number", "kind", "code"),
    [
        (1227, Fatal, "MR-1005"),
        (1053, Retryable, "MR-1006"),
        (1927, Retryable, "MR-1006"),
        (1373, Retryable, "MR-1040"),
    ],
)
def test_other_dump_errors_are_classified_by_number(
    number: int, kind: type[MillraceError], code: str
) -> None:
    """Privilege, shutdown, kill, and a file missing from the index are covered."""
    error = explain_dump_error(number, "text", HERE)
    assert (type(error), error.code) == (kind, code)


def test_final_packets_are_decoded() -> None:
    """Packets with and without an SQL state, an end of stream, and garbage are covered."""
    assert decode_error_packet(b"\xff\xd4\x04#HY000position > file size", HERE).code == "MR-1041"
    assert decode_error_packet(b"\xff\x1d\x04shutdown", HERE).code == "MR-1006"
    assert decode_error_packet(b"\xfe\x00\x00\x02\x00", HERE).code == "MR-1006"
    assert decode_error_packet(b"\x07", HERE).code == "MR-2005"


def test_dump_requests_follow_the_protocol() -> None:
    """The bytes are from the protocol's description; the server id is stable and above usual ids."""
    assert dump_payload(7, file="b.000001", pos=4, flags=2) == b"\4\0\0\0\2\0\7\0\0\0b.000001"
    assert register_payload(7) == b"\7\0\0\0\x08millrace\0\0\0\0\0\0\0\0\0\0\0\0"
    assert (
        ReplicaIdentity.for_set("shop")
        == ReplicaIdentity.for_set("shop")
        != ReplicaIdentity.for_set("shop2")
    )
    assert 2**30 <= ReplicaIdentity.for_set("shop").server_id < 2**31


def test_installations_sharing_a_set_name_do_not_evict_each_other() -> None:
    """A server keeps one dump for each server id and UUID."""
    one, other = (
        ReplicaIdentity.for_set("shop", installation=name) for name in ("default/a1", "default/b2")
    )
    assert one.server_id != other.server_id
    assert one.uuid != other.uuid


def test_server_id_of_a_replica_is_not_taken() -> None:
    """The next free one is taken; Millrace's former reader, which is to be evicted, keeps none."""
    reader = ReplicaIdentity.for_set("shop")
    replica: NamedRow = {"Server_Id": reader.server_id, "Host": "db-2", "Port": 3306}
    former: NamedRow = {"Server_Id": reader.server_id, "Host": HOST, "Port": 0}
    modern, maria = ServerVersion.parse("8.4.0"), ServerVersion.parse("10.11.19-MariaDB")
    for rows, server_id in (([replica], reader.server_id + 1), ([former], reader.server_id)):
        older = [{name.replace("_Id", "_id"): value for name, value in row.items()} for row in rows]
        asked = _Asked({"SHOW REPLICAS": rows, "SHOW SLAVE HOSTS": older})
        for server in (modern, maria):
            taken = ask_replica_ids(cast(MySqlSession, asked), server)
            assert reader.avoiding(taken).server_id == server_id
    refused = cast(MySqlSession, _Asked({}))
    assert ask_replica_ids(refused, maria) == frozenset()


class _Asked:
    """A server's answers; the account may send no other query."""

    def __init__(self, answers: dict[str, list[NamedRow]]) -> None:
        self._answers = answers

    def named(self, statement: str) -> list[NamedRow]:
        if statement not in self._answers:
            raise Fatal("MR-1005", f"{statement}: access denied")
        return self._answers[statement]


def test_printed_gtid_list_is_parsed() -> None:
    """The last one of a domain is its position."""
    assert str(parse_gtid_list("[0-2-3,\n0-1-5,\n1-1-2]")) == "0-1-5,1-1-2"
    assert parse_gtid_list("[]").is_empty


def _failing(error: Exception) -> MySqlSession:
    """Return a connection whose queries end with this error of the driver."""
    connection = mock.MagicMock()
    connection.cursor.return_value.__enter__.return_value.execute.side_effect = error
    connection.cursor.return_value.__exit__.return_value = None
    endpoint = Endpoint(HERE.host, HERE.port, "", "")
    return MySqlSession(endpoint, connection=connection, codes=CAPTURE_CODES)


@pytest.mark.parametrize(
    "number",
    [
        *(1040, 1053, 1129, 1203, 1205, 1226, 1927, 3032, 3168, 3169, 4031),
        *(5, 1037, 1041, 1135, 3015, 3950, 4081, 4082),  # memory, threads
        *(1158, 1159, 1160, 1161, 1317, 1969, 3024),  # too slow, interrupted
        *(3, 20, 1021, 1026, 1114),  # no space for a temporary file or table
        1047,  # a node that has left its cluster
    ],
)
def test_temporary_source_error_is_retried(number: int) -> None:
    """A server without memory, threads, space or time, or one that shuts down, has not answered the question."""
    with pytest.raises(Retryable) as caught:
        _failing(pymysql.OperationalError(number, "text")).query("SHOW MASTER STATUS")
    assert caught.value.code == "MR-1001"


@pytest.mark.parametrize(
    ("message", "code"),
    [
        ("Could not find target log", "MR-1040"),
        ("Could not open log file", "MR-1040"),
        ("Wrong offset or I/O error", "MR-1044"),
    ],
)
def test_binlog_file_purged_between_queries_is_retried(message: str, code: str) -> None:
    """Error 1220 has the dump's words: a file was purged between two queries, or an event exceeds the limit."""
    refused = pymysql.OperationalError(
        1220, f"Error when executing command SHOW BINLOG EVENTS: {message}"
    )
    with pytest.raises(Retryable) as caught:
        binlog_events(_failing(refused), "binlog.000001", 1)
    assert caught.value.code == code
    assert ("max_allowed_packet" in caught.value.fix) == (code == "MR-1044")
    assert message in caught.value.message
