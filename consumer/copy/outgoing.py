"""Statements from the text that the kernel writes, inside the target's open transaction.

    LOAD DATA    sent in packets while the text grows; ends after so many rows, and the next one begins
    INSERT       whole rows, at most so many bytes, for a table that takes no LOAD DATA

The answer to each statement is checked. A row that did not become exactly one row, or a value that the server changed,
is Fatal MR-5080, and a row that exists MR-5081. Index 0 of an ENUM is no value of the type: the server warns of it and
writes it. So exactly that many warnings are expected.
"""

from typing import NoReturn, Protocol

import numpy as np

from millrace.consumer.copy.columns import CopyColumn
from millrace.consumer.copy.form import Form, insert_form, load_form
from millrace.consumer.copy.table_pair import TablePair
from millrace.consumer.kernel.text_rows import MARK, OUT, ROWS, ROWS_MAX, ZEROS
from millrace.consumer.tables.generated_columns import fix_of_refusal
from millrace.consumer.tables.load_data import LOAD_ROWS_MAX
from millrace.drivers.mysql.connection import Loading, MySqlSession, Written
from millrace.errors import Fatal, Retryable
from millrace.text_protocol.walk import PACKET_MAX, Bytes, Ints

INSERT_ROWS_MAX = 1000  # as consumer.write.statements
ASIDE_BYTES_MAX = 1 << 20
_SHOWN_MAX = 3  # warnings
_DUPLICATE = {1062, 1586}
# where LOAD DATA warns, INSERT fails: for a row that exists, and for a value
_REFUSALS = {"MR-5010": "MR-5081", "MR-5011": "MR-5080"}


class Outgoing(Protocol):
    """``out`` receives the kernel's text from ``begin`` on. ``form``: see there."""

    out: Bytes
    begin: int
    form: Form
    rows_max: int

    @property
    def is_open(self) -> bool:
        """Whether the session is in the middle of a statement."""
        ...

    def full(self, state: Ints) -> None:
        """Make room in ``out``, and begin the next statement after so many rows."""

    def is_written(self) -> bool:
        """After ``full``: whether every row so far is on the target, in answered statements. Waits for an answer."""
        ...

    def aside(self, state: Ints, /, sql: bytes, zeros: int) -> None:
        """Write one row by a separate statement, between two rows. ``zeros``: the warnings to expect."""

    def finish(self, state: Ints) -> None:
        """Write all that is left."""


class LoadWriter:
    """LOAD DATA LOCAL."""

    def __init__(self, session: MySqlSession, pair: TablePair, bytes_max: int) -> None:
        self._session, self._pair = session, pair
        self.form = load_form(pair.columns)
        size = min(bytes_max, pair.packet_bytes_max // 2, PACKET_MAX - 1)
        self.out: Bytes = np.empty(max(size, 2 * self.form.margin), np.uint8)
        self.begin, self.rows_max = 0, LOAD_ROWS_MAX
        self._loading: Loading | None = None
        self._ended: tuple[Loading, int, int] | None = None  # with the rows and zeros to expect
        self._counted = (0, 0)  # rows and zeros of the finished statements
        self._aside: list[tuple[bytes, int]] = []

    @property
    def is_open(self) -> bool:
        """Whether the server has not answered yet."""
        return self._loading is not None or self._ended is not None

    def full(self, state: Ints) -> None:
        """See ``Outgoing``."""
        self._send(state)
        if state[ROWS] >= state[ROWS_MAX]:
            self._end(state)

    def is_written(self) -> bool:
        """See ``Outgoing``."""
        if self._loading is not None:
            return False
        self._settle()
        return True

    def aside(self, state: Ints, sql: bytes, zeros: int) -> None:
        """Kept until the statement ends, which it does after so many bytes."""
        self._aside.append((sql, zeros))
        if sum(len(kept) for kept, _ in self._aside) > ASIDE_BYTES_MAX:
            self.finish(state)

    def finish(self, state: Ints) -> None:
        """See ``Outgoing``."""
        self._send(state)
        self._end(state)
        self._settle()

    def _send(self, state: Ints) -> None:
        if state[OUT] == 0:
            return
        if self._loading is None:
            self._settle()
            assert self._pair.load is not None
            self._loading = self._session.begin_load(self._pair.load)
            if self._loading is None:
                raise Retryable(
                    "MR-5083", f"{self._pair.name}: local_infile is off", table=self._pair.name
                )
        self._loading.send(self.out.data[: state[OUT]])
        state[OUT] = state[MARK] = 0

    def _end(self, state: Ints) -> None:
        """End the file, if there is one. The next rows are read before the server has answered."""
        rows, zeros = _grown(state, self._counted)
        if self._loading is not None:
            self._loading.end()
            self._ended = (self._loading, rows, zeros)
            self._loading = None
        self._counted = (int(state[ROWS]), int(state[ZEROS]))
        state[ROWS_MAX] = state[ROWS] + self.rows_max

    def _settle(self) -> None:
        if self._ended is not None:
            (loading, rows, zeros), self._ended = self._ended, None
            answer = loading.answer()
            gone = answer.rows - rows if self._pair.replaces else 0
            if answer != Written(rows + gone, zeros, (rows, gone, 0, zeros)):
                refuse(self._session, self._pair, rows, answer)
        for sql, zeros in self._aside:
            insert(self._session, self._pair, sql, rows=1, zeros=zeros)
        self._aside.clear()


class InsertWriter:
    """INSERT of several rows."""

    is_open = False

    def __init__(self, session: MySqlSession, pair: TablePair, bytes_max: int) -> None:
        self._session, self._pair = session, pair
        self.form = insert_form(pair.columns)
        lead = np.frombuffer(pair.insert, np.uint8)
        self.begin, self.rows_max = len(lead), INSERT_ROWS_MAX
        size = max(min(bytes_max, pair.packet_bytes_max // 2), self.begin + 2 * self.form.margin)
        self.out: Bytes = np.empty(size, np.uint8)
        self.out[: self.begin] = lead
        self._counted = (0, 0)

    def full(self, state: Ints) -> None:
        """Run a statement with the whole rows; the bytes of the last one stay."""
        mark, out = int(state[MARK]), int(state[OUT])
        if mark == self.begin:
            self._grow()
            return
        rows, zeros = _grown(state, self._counted)
        sql = self.out[: mark - 1].tobytes()  # without the last comma
        insert(self._session, self._pair, sql, rows=rows, zeros=zeros)
        self._counted = (int(state[ROWS]), int(state[ZEROS]))
        rest = self.out[mark:out].copy()
        self.out[self.begin : self.begin + len(rest)] = rest
        state[MARK], state[OUT] = self.begin, self.begin + len(rest)
        state[ROWS_MAX] = state[ROWS] + self.rows_max

    def is_written(self) -> bool:
        """See ``Outgoing``. The bytes of a row that has not arrived wholly stay."""
        return True

    def aside(self, _: Ints, sql: bytes, zeros: int) -> None:
        """Run at once."""
        insert(self._session, self._pair, sql, rows=1, zeros=zeros)

    def finish(self, state: Ints) -> None:
        """See ``Outgoing``."""
        if state[MARK] > self.begin:
            self.full(state)

    def _grow(self) -> None:
        limit = self._pair.packet_bytes_max - 1
        if len(self.out) >= limit:
            what = f"{self._pair.name}: a row needs a statement of more than {limit} bytes"
            raise Fatal("MR-5014", what, table=self._pair.name)
        grown: Bytes = np.empty(min(2 * len(self.out), limit), np.uint8)
        grown[: len(self.out)] = self.out
        self.out = grown


def _grown(state: Ints, counted: tuple[int, int]) -> tuple[int, int]:
    """The rows and zeros since ``counted``."""
    return int(state[ROWS]) - counted[0], int(state[ZEROS]) - counted[1]


def insert(session: MySqlSession, pair: TablePair, sql: bytes, *, rows: int, zeros: int) -> None:
    """Run an INSERT and check that it wrote these rows unchanged."""
    try:
        answer = session.insert(sql)
    except Fatal as exc:
        if (code := _REFUSALS.get(exc.code)) is None:
            raise
        fix = fix_of_refusal(pair.target, exc.message, "TASK")
        raise Fatal(code, f"{pair.name}: {exc.message}", fix=fix, table=pair.name) from exc
    wrote = answer.rows >= rows if pair.replaces else answer.rows == rows
    if not wrote or answer.warnings != zeros:
        refuse(session, pair, rows, answer)


def refuse(session: MySqlSession, pair: TablePair, rows: int, answer: Written) -> NoReturn:
    """Raise what the server's first warnings say."""
    warnings = session.warnings(_SHOWN_MAX)
    for number, text in warnings:
        if number in _DUPLICATE:
            fix = fix_of_refusal(pair.target, text, "TASK")
            raise Fatal("MR-5081", f"{pair.name}: {text}", fix=fix, table=pair.name)
    texts = "; ".join(text for _, text in warnings) or "without a warning"
    what = f"{pair.name}: of {rows} rows {answer.rows} were written, {answer.warnings} warnings: {texts}"
    raise Fatal("MR-5080", what, fix=fix_of_refusal(pair.target, texts, "TASK"), table=pair.name)


def null_refused(pair: TablePair, column: CopyColumn) -> Fatal:
    """The error for a NULL that the target would replace, which it does not always report."""
    what = f"{pair.name}: column {column.name} has a NULL, and is NOT NULL on the target"
    return Fatal("MR-5080", what, table=pair.name, column=column.name)
