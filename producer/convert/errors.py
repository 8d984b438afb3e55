"""The kernel's error codes as errors for an operator: code, message, coordinates. Apart: a table."""

from millrace.errors import Fatal
from millrace.producer.binlog import events as t
from millrace.producer.convert.arrays import Numbers
from millrace.producer.convert.kernel import state as s
from millrace.schemas.place import Coordinates

_PLAIN = {
    s.TRUNCATED: ("MR-6003", "a length reaches beyond the end of the event"),
    s.ANONYMOUS: ("MR-6503", "an anonymous transaction"),
    s.OUT_OF_GROUP: ("MR-6506", "rows, a statement or a commit outside a source transaction"),
    s.GROUP_UNFINISHED: ("MR-6506", "a source transaction begins inside another"),
    s.TABLE_UNMAPPED: (
        "MR-6506",
        "rows of a table without a table map in their source transaction",
    ),
    s.VALUE_BROKEN: ("MR-6003", "a column's value does not have the format of its type"),
    s.COLUMNS_DIFFER: ("MR-6003", "rows and their table map have different numbers of columns"),
    s.NOT_EXPECTED: ("MR-6508", "the source transaction to resume is not the next one"),
    s.BACKWARDS: ("MR-6002", "a GTID sequence went backwards in its domain"),
    s.ENCRYPTED: ("MR-6509", "an encrypted binlog"),
    s.COMPRESSED_BROKEN: ("MR-6003", "compressed rows cannot be inflated"),
    s.GTID_BROKEN: ("MR-6003", "a GTID cannot be read"),
    s.OTHER_HISTORY: (
        "MR-1033",
        "the last processed sequence number belongs to a transaction of another server",
    ),
}


def kernel_error(state: Numbers, at: Coordinates) -> Fatal:
    code, kind = int(state[s.ERROR_CODE]), int(state[s.EVENT_TYPE])
    if code == s.TYPE_UNKNOWN:
        return Fatal("MR-6502", f"unknown event type {kind}", coordinates=at)
    if code == s.FLAGS_UNKNOWN:
        flags = int(state[s.ERROR_DETAIL])
        return Fatal("MR-6502", f"unknown flags {flags:#x} of a rows event", coordinates=at)
    if code == s.TYPE_REFUSED:
        if kind == t.PARTIAL_UPDATE_ROWS:
            return Fatal("MR-6505", "partial JSON values", coordinates=at)
        if kind == t.INCIDENT:
            return Fatal("MR-6510", "the source reports that it lost events here", coordinates=at)
        return Fatal("MR-6502", f"event type {kind} is not supported", coordinates=at)
    found, sentence = _PLAIN[code]
    return Fatal(
        found, sentence, coordinates=at, event_type=kind, detail=int(state[s.ERROR_DETAIL])
    )
