"""A driver's error becomes a branch, a code, and a text without a row's contents."""

from typing import Any, Never, cast

import pymysql
import pytest

from millrace.drivers.mysql.connection import Endpoint, MySqlSession, translated
from millrace.drivers.mysql.errors import CAPTURE_CODES
from millrace.errors import Fatal, MillraceError, Retryable

ERRORS = {
    "MR-5001": (
        *(0, 1053, 1158, 1180, 1317, 1927, 1969, 2003, 2006, 2013, 3024, 3168, 3169, 4031),
        *(1047, 1129, 1297, 3100, 3781, 3782, 3783, 3796, 3797, 3798, 3799, 4094),  # one group
    ),
    "MR-5002": (1045, 1130, 1251, 1275, 1698, 2061, 3955, 4151),
    "MR-5003": (1036, 1290, 1792, 1836, 1874, 3989),
    "MR-5004": (
        *(1040, 1135, 1203, 1206, 1226, 1587, 1637),
        *(5, 1037, 1041, 1998, 3015, 3044, 3950, 3985, 4081, 4082),  # memory
    ),
    "MR-5005": (1020, 1205, 1213, 1412, 1689, 1964, 3101, 3572),
    "MR-5006": (3, 20, 1021, 1026, 1114, 1878, 3675, 3884),
    "MR-5007": (1044, 1142, 1143, 1227, 1370, 1410, 3530),
    "MR-5010": (1022, 1062, 1169, 1216, 1451, 1452),
    "MR-5011": (1048, 1264, 1292, 1364, 1366, 1406, 3819, 4025, 9999),
    "MR-5012": (1049, 1051, 1146),
    "MR-5013": (1054,),
    "MR-5014": (1153,),
}
TRIED_AGAIN = ("MR-5001", "MR-5003", "MR-5004", "MR-5005", "MR-5006")
CODES_OF_CAPTURE = {"MR-1001", "MR-1002", "MR-1004", "MR-1005", "MR-1006", "MR-1007"}
WANTED = [(number, code) for code, numbers in ERRORS.items() for number in numbers]


@pytest.mark.parametrize(("number", "code"), WANTED)
def test_each_target_error_has_its_branch_and_code(number: int, code: str) -> None:
    """Temporary errors are retried; errors that continuing would worsen stop the task; the number is kept."""
    found = translated(pymysql.err.OperationalError(number, "message"))
    branch: type[MillraceError] = Retryable if code in TRIED_AGAIN else Fatal
    assert type(found) is branch
    assert found.code == code
    assert found.context["errno"] == str(number)
    assert found.fix


def test_both_halves_retry_the_same_errors(monkeypatch: pytest.MonkeyPatch) -> None:
    """For each error number of a query; each half has its own codes."""
    session = MySqlSession(
        Endpoint("db", 3306, "millrace", ""), connection=cast(Any, _Refusing()), codes=CAPTURE_CODES
    )
    found = {}
    for number, text in (*((number, "message") for number in range(10_000)), *FULL):
        error = pymysql.err.OperationalError(number, text)
        monkeypatch.setattr(_Refusing, "error", error)
        with pytest.raises(MillraceError) as caught:
            session.query("SELECT 1")
        found[number] = caught.value
        assert type(caught.value) is type(translated(error)), number
        assert caught.value.errno == number
    assert {error.code for error in found.values()} == CODES_OF_CAPTURE


class _Refusing:
    """A driver's session that refuses each statement."""

    error: Exception = pymysql.err.OperationalError()

    def cursor(self, *_: object) -> Never:
        raise self.error


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "Incorrect integer value: 'it's' for column 'n' at row 1",
            "Incorrect integer value for column 'n' at row 1",
        ),
        ("Truncated incorrect DOUBLE value: 'a\nb'", "Truncated incorrect DOUBLE value"),
        ("Data too long for column 'n' at row 1", "Data too long for column 'n' at row 1"),
    ],
)
def test_error_never_shows_the_refused_value(text: str, message: str) -> None:
    """Logs and status name the column, never its value."""
    assert translated(pymysql.err.DataError(1366, text)).message == message


FULL = (
    (1, "Can't create/write to file '/t/x' (OS errno 28 - No space left on device)"),
    (1, "Can't create/write to file '/t/x' (Errcode: 28 \"No space left on device\")"),
    (1, "Can't create/write to file '/t/x' (Errcode: 28 \"Kein Platz mehr\")"),
    (1030, "Got error 28 - 'No space left on device' from storage engine"),
    (1030, 'Got error 28 "No space left on device" from storage engine Aria'),
)


@pytest.mark.parametrize(("number", "text"), FULL)
def test_full_disk_is_recognized_by_its_errno(number: int, text: str) -> None:
    """ "Cannot create file" and "engine failed" have many reasons; a full disk is a temporary one."""
    found = translated(pymysql.err.OperationalError(number, text))
    assert (type(found), found.code) == (Retryable, "MR-5006")


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (1, "Can't create/write to file '/t/error 28/x' (OS errno 13 - Permission denied)"),
        (1030, "Got error 128 - 'Out of memory in engine' from storage engine"),
        (1030, "Got error 168 - 'Unknown (generic) error from engine' from storage engine"),
        (1264, "Out of range value for column 'error 28' at row 1"),
    ],
)
def test_same_error_number_without_errno_stops_the_task(number: int, text: str) -> None:
    """Errno 28 is looked for where the server writes it, in these two errors only."""
    found = translated(pymysql.err.OperationalError(number, text))
    assert (type(found), found.code) == (Fatal, "MR-5011")
