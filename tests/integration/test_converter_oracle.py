"""Rows compared with python-mysql-replication; where its value is wrong, the reason is given here.

Not compared, because it cannot read the table (``UNREADABLE``): VECTOR (unknown metadata) and MariaDB's compressed
columns (unknown types). Values that end its reading are not written (``UNREADABLE_VALUES``).
"""

import json
from collections.abc import Callable
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

import pymysqlreplication
import pytest
from pymysqlreplication.row_event import WriteRowsEvent

from millrace.deploy.servers import Account, DatabaseServer
from tests.kit.binlog.session import LoggedSession, logged
from tests.kit.type_values import CASES, TypeCase

pytestmark = pytest.mark.both_flavours

UNREADABLE = ("VECTOR", "COMPRESSED")
UNREADABLE_VALUES = {
    "DATE": ("'2024-02-31'",),  # it builds Python dates
    "JSON": ("-838:59:59",),
}
READER = Account("oracle", "oracle-secret")


class LostError(Exception):
    """The oracle does not return the stored value."""


def _bit(value: str, ours: object) -> object:
    size = len(ours) if isinstance(ours, bytes) else 0
    return int(value, 2).to_bytes(size, "big")


def _year(value: int, _: object) -> object:
    if value == 1900:  # YEAR 0000 is stored as 0; the oracle adds 1900
        raise LostError
    return value


def _time(value: timedelta, ours: object) -> object:
    # the oracle adds the fraction to a negative time
    if str(ours).startswith("-") and "." in str(ours):
        raise LostError
    micros = value // timedelta(microseconds=1)
    seconds, micros = divmod(abs(micros), 1_000_000)
    sign = "-" if value < timedelta() else ""
    text = f"{sign}{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}.{micros:06}"
    return text[: len(str(ours))]


def _moment(value: datetime | None, ours: object) -> object:
    if value is None:  # zero and invalid dates become None
        raise LostError
    if value == datetime(1970, 1, 1):  # noqa: DTZ001 (the oracle's have no zone) # the zero timestamp becomes 1970
        raise LostError
    return value.strftime("%Y-%m-%d %H:%M:%S.%f")[: len(str(ours))].rjust(len(str(ours)), "0")


def _bytes(value: str | bytes, ours: object) -> object:
    content = value.encode() if isinstance(value, str) else value  # "" for no bytes
    return content.ljust(len(ours) if isinstance(ours, bytes) else 0, b"\0")  # BINARY is not padded


def _set(value: set[str] | None, ours: object) -> object:
    if value is None:  # the empty set becomes None
        raise LostError
    return ours if set(str(ours).split(",")) == value else ",".join(value)


def _same(value: object, _: object) -> object:
    return value


def _date(value: date | None, ours: object) -> object:
    if value is None:  # zero and invalid dates become None
        raise LostError
    return str(value)


class _Number(str):
    """The value as it appears in JSON text."""

    __slots__ = ()


def _document(value: object, ours: object) -> object:
    if "base64:type" in str(ours):  # the oracle drops bytes that are not text
        raise LostError
    if isinstance(value, str):  # on MariaDB a string
        return value
    mine = json.loads(str(ours), parse_float=_Number, parse_int=_Number)
    return ours if _is_same(value, mine) else value


def _is_same(theirs: object, ours: object) -> bool:
    if isinstance(theirs, list):
        assert isinstance(ours, list)
        return len(theirs) == len(ours) and all(map(_is_same, theirs, ours))
    if isinstance(theirs, dict):
        assert isinstance(ours, dict)
        return [name.decode() for name in theirs] == list(ours) and all(
            map(_is_same, theirs.values(), ours.values())
        )
    if isinstance(theirs, bool) or theirs is None:
        return theirs is ours
    if isinstance(theirs, float):
        return isinstance(ours, _Number) and repr(float(ours)) == repr(theirs)
    if isinstance(theirs, Decimal | int):
        text = f"{theirs:f}" if isinstance(theirs, Decimal) else str(theirs)
        return isinstance(ours, _Number) and text == ours
    if isinstance(theirs, datetime):
        midnight = f"{ours} 00:00:00.000000"  # the oracle turns a DATE into a datetime
        return theirs.isoformat(" ", "microseconds") in (ours, midnight)
    if isinstance(theirs, time):
        return theirs.isoformat("microseconds") == ours
    return isinstance(theirs, bytes) and theirs.decode() == ours


READS: tuple[tuple[str, Callable[[Any, object], object]], ...] = (
    ("BIT", _bit),
    ("YEAR", _year),
    ("DATETIME", _moment),
    ("TIMESTAMP", _moment),
    ("TIME", _time),
    ("DATE", _date),
    ("JSON", _document),
    ("SET", _set),
    *(
        (name, _bytes)
        for name in ("BINARY", "VARBINARY", "BLOB", "TINYBLOB", "MEDIUMBLOB", "LONGBLOB")
    ),
    *((name, _bytes) for name in ("GEOMETRY", "POINT", "UUID", "INET")),
)


def _reads(case: TypeCase) -> Callable[[Any, object], object]:
    return next((read for name, read in READS if case.ddl.startswith(name)), _same)


def _readable(case: TypeCase) -> list[str]:
    marks = UNREADABLE_VALUES.get(case.ddl, ())
    return [value for value in case.values if not any(mark in value for mark in marks)]


def _oracle_rows(source: LoggedSession) -> dict[tuple[str, int], object]:
    server = source.server
    stream = pymysqlreplication.BinLogStreamReader(
        connection_settings={
            "host": server.host,
            "port": server.port,
            "user": READER.user,
            "password": READER.password,
        },
        server_id=987_654,
        only_events=[WriteRowsEvent],
        only_schemas=[source.database],
        log_file=source.file,
        log_pos=4,
        resume_stream=True,
        blocking=False,
    )
    try:
        return {
            (str(event.table), int(row["values"]["id"])): row["values"]["v"]
            for event in stream
            for row in event.rows
        }
    finally:
        stream.close()


@pytest.mark.filterwarnings("ignore:'db' is deprecated")  # the oracle's call of PyMySQL
def test_independent_decoder_reads_the_same_values(server: DatabaseServer) -> None:
    """Compares every value that the oracle returns, for every type that it can read."""
    cases = [
        case
        for case in CASES
        if server.flavour in case.flavours
        and not any(
            case.ddl.split("(")[0].endswith(name) or name in case.ddl.split() for name in UNREADABLE
        )
    ]
    grants = "REPLICATION SLAVE, REPLICATION CLIENT, SELECT"
    server.execute(f"DROP USER IF EXISTS '{READER.user}'@'%'")
    server.execute(f"CREATE USER '{READER.user}'@'%' IDENTIFIED BY '{READER.password}'")
    server.execute(f"GRANT {grants} ON *.* TO '{READER.user}'@'%'")
    with logged(server, "oracle_rows") as source:
        for number, case in enumerate(cases):
            source.run(f"CREATE TABLE t{number} (id INT PRIMARY KEY, v {case.ddl})")
            for place, value in enumerate((*_readable(case), "NULL"), 1):
                source.run(f"INSERT INTO t{number} VALUES ({place}, {value})")
        rows = source.conversion().rows()
        oracle = _oracle_rows(source)
    server.execute(f"DROP USER '{READER.user}'@'%'")
    compared = 0
    for row in rows:
        assert row.change.after is not None
        ours = row.change.after["v"]
        named = (row.source.table, int(str(row.change.after["id"])))
        case = cases[int(row.source.table[1:])]
        theirs = oracle.pop(named)
        if ours is None:
            assert theirs is None
            continue
        try:
            theirs = _reads(case)(theirs, ours)
        except LostError:
            continue
        assert theirs == ours, (case.ddl, theirs, ours)
        compared += 1
    assert not oracle
    assert compared > 290
