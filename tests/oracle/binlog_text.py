"""The source's binlog as its own program prints it: ``mysqlbinlog -vv --verify-binlog-checksum``.

    SET @@SESSION.GTID_NEXT= '5a33643f-e5b5-11f1-a196-02fc00000001:7'
    ### UPDATE `ledger`.`entries`
    ### WHERE
    ###   @1=0 /* INT meta=0 nullable=0 is_null=0 */

Compared with the topic: source transactions, tables, operations, their order and number, and the first column of each
row's first image if it is a plain integer. The program verifies the checksums of all events.
"""

import re
import subprocess
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

from tests.oracle.record import Change, Message, harm

_GTID = re.compile(r"SET @@SESSION\.GTID_NEXT= '([^']+)'")
_ROW = re.compile(r"### (INSERT INTO|UPDATE|DELETE FROM) `([^`]+)`\.`([^`]+)`")
_FIRST = re.compile(r"###   @1=(-?\d+) /\* (?:LONGINT|INT|SHORTINT|MEDIUMINT|TINYINT) ")
_OPS = {"INSERT INTO": "c", "UPDATE": "u", "DELETE FROM": "d"}


@dataclass(frozen=True, slots=True)
class TextRow:
    """A row as printed; ``first`` is the first column of its first image, None if it is no plain integer."""

    gtid: str
    table: str
    op: str
    first: int | None = None


def read_text(program: Path, files: Iterable[Path], position: int) -> Iterator[str]:
    """Yield the program's lines from ``position`` of the first file; AssertionError with its message if it fails."""
    options = ("-vv", "--verify-binlog-checksum", "--base64-output=decode-rows")
    command = [str(program), *options, f"--start-position={position}", *map(str, files)]
    with ExitStack() as ended:
        run = ended.enter_context(
            subprocess.Popen(
                command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, errors="replace"
            )
        )
        ended.callback(run.kill)
        assert run.stdout is not None
        assert run.stderr is not None
        yield from run.stdout
        said = run.stderr.read()
        assert run.wait() == 0, said
        assert "ERROR" not in said, said


def parse_rows(lines: Iterable[str], database: str) -> Iterator[TextRow]:
    """Yield the rows of one database from the program's output."""
    gtid = ""
    row: TextRow | None = None
    for line in lines:
        if (found := _GTID.match(line)) is not None:
            gtid = found[1]
        elif (found := _ROW.match(line)) is not None:
            if row is not None:
                yield row
            row = TextRow(gtid, found[3], _OPS[found[1]]) if found[2] == database else None
        elif row is not None and row.first is None and (found := _FIRST.match(line)) is not None:
            row = replace(row, first=int(found[1]))
    if row is not None:
        yield row


class TextOracle:
    """Compares every message fed to it with ``rows``."""

    def __init__(self, database: str, rows: Iterable[TextRow]) -> None:
        self.rows_compared = 0
        self._database = database
        self._rows = iter(rows)

    def feed(self, message: Message) -> None:
        """Check the next message; statements and messages of other databases are skipped."""
        change = message.change
        if not isinstance(change, Change) or change.database != self._database:
            return
        printed = next(self._rows, None)
        if printed is None:
            raise harm(message, f"mysqlbinlog does not have it: {change}")
        if (printed.gtid, printed.table, printed.op) != (message.gtid, change.table, change.op):
            raise harm(message, f"{change}; mysqlbinlog has {printed}")
        image = change.after if change.before is None else change.before
        first = next(iter(image.values())) if image else None
        if printed.first is not None and printed.first != first:
            raise harm(message, f"{change}; mysqlbinlog has {printed}")
        self.rows_compared += 1

    def finish(self) -> None:
        """Check the end, after the last message of a topic at rest."""
        left = next(self._rows, None)
        assert left is None, f"in mysqlbinlog and not in the topic: {left}"
        assert self.rows_compared, "nothing was compared"
