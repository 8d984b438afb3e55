"""``millrace try URL``: the rows of a server as they commit, with nothing but that server.

A new installation has no machine code of the kernels, and compiling takes a minute. Until then they run as plain
Python, which shows some thousand rows a second. After the compilation, in a quiet moment or when it falls behind, the
process replaces itself: the new one continues at the same place of the binlog.
"""

import json
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, astuple, dataclass, field, replace
from typing import TYPE_CHECKING, Annotated, TypeAlias

import typer

from millrace import machine_code
from millrace.cli.exits import OutputClosed, is_output_closed
from millrace.errors import MillraceError
from millrace.process.signals import (
    INTERRUPTED,
    ending_at_interrupt,
    held_interrupts,
    noted_interrupts,
    raising_at_interrupt,
    release_interrupts,
)
from millrace.wording import counted

if TYPE_CHECKING:
    from millrace.cli.trial.address import ServerAddress
    from millrace.producer.trial.trial import RawRecords, Trial, TrialPlace
    from millrace.schemas.record.control import DdlRecord
    from millrace.schemas.record.record import RowRecord

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)

CONTINUES = "MILLRACE_TRY"  # what a process gives to the one that replaces it, as JSON
_NO_TLS = "MR-1004"

Url = Annotated[
    str,
    typer.Argument(
        metavar="URL",
        help="mysql://user@host[:port][/database[.table]]; see above.",
        show_default=False,
    ),
]
After = Annotated[
    str,
    typer.Option(
        "--from",
        metavar="GTID-SET",
        help="Begin after these source transactions, or with `first` at the oldest binlog, instead of now.",
    ),
]
Count = Annotated[int, typer.Option("-n", help="End after N rows and statements.", min=0)]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object a line.")]


As = Annotated[
    str,
    typer.Option(
        "--as", metavar="FORMAT", help="Print the records of a publish task, such as debezium-json."
    ),
]
ToKafka = Annotated[
    str, typer.Option("--to-kafka", metavar="HOST:PORT", help="Send them to a topic there, too.")
]
Topic = Annotated[str, typer.Option(help="The topic of --to-kafka; it is created.")]


@app.command("try")
def try_(
    url: Url,
    *,
    after: After = "",
    count: Count = 0,
    as_json: Json = False,
    as_format: As = "",
    to_kafka: ToKafka = "",
    topic: Topic = "try",
) -> None:
    """Show the rows of your server as they commit. Nothing but the server is needed, and nothing is written to it.

    URL is mysql://user[:password]@host[:port][/database[.table]]. Several hosts of one set are separated by commas: the
    best is chosen. Without a password, MYSQL_PWD is used, or you are asked. `?tls=verify-ca&ca=FILE` or another mode
    of a set document decides about TLS.

    Standard error shows which server is read, and what a capture task would need. Ctrl-C ends the command, which then
    prints the documents of a set and a capture task.
    """
    look = Look.continued()
    with ending_at_interrupt(look.end):
        _try(url, look, Request(after, count, as_json, as_format, to_kafka, topic))


def _try(url: str, look: "Look", request: "Request") -> None:
    from millrace.cli.trial.address import ServerAddress
    from millrace.cli.trial.fixes import continuation, fix_of

    address = look.address = ServerAddress.parse(url)
    release_interrupts()
    _check_format(request.as_format, as_json=request.as_json)
    # the kernels of a format take minutes to compile, and only publish tasks have them compiled
    if request.as_format:
        machine_code.interpret()
    elif not machine_code.is_compiled() and machine_code.interpret():
        machine_code.compile_in_background()
    try:
        _look(address, look, request)
    except KeyboardInterrupt:
        if not look.file:  # while the password is asked
            raise
    except MillraceError as error:
        fix = fix_of(error)
        if look.file:
            look.end()
            fix = " ".join(filter(None, (continuation(error, look.position), fix)))
        raise type(error)(error.code, error.message, fix=fix, **error.context) from error
    look.end()


def _check_format(name: str, *, as_json: bool) -> None:
    """Refuse what is no format, or needs a registry."""
    from millrace.schemas.view.format_options import FormatName

    without_registry = [each.value for each in FormatName if not each.is_avro]
    if name and name not in without_registry:
        why = f"{name!r} is not one of {', '.join(without_registry)}"
        raise typer.BadParameter(why, param_hint="--as")
    if name and as_json:
        raise typer.BadParameter("--as and --json exclude each other", param_hint="--as")


@dataclass(frozen=True, slots=True)
class Request:
    """The options. ``count``: 0 for no end. ``as_format``: "" for rows as they are in a set topic."""

    after: str
    count: int
    as_json: bool
    as_format: str
    to_kafka: str
    topic: str


@dataclass(slots=True)
class Look:
    """The rows that were shown so far, and where a process that replaces this one continues."""

    rows: int = 0
    statements: int = 0
    tables: list[str] = field(default_factory=list)
    file: str = ""  # "" until the member is chosen
    pos: int = 0
    position: str = ""
    server: str = ""
    seq: int = 0
    open: "tuple[str, int] | None" = None  # as ``TrialPlace``
    address: "ServerAddress | None" = None
    is_ended: bool = False

    @classmethod
    def continued(cls) -> "Look":
        """That of the process which this one replaces."""
        return cls(**json.loads(os.environ.pop(CONTINUES, "{}")))

    def note(self, record: "RowRecord | DdlRecord") -> None:
        """Count a record."""
        from millrace.schemas.record.record import RowRecord

        if not isinstance(record, RowRecord):
            self.statements += 1
            return
        self.rows += 1
        name = f"{record.source.database}.{record.source.table}"
        if name not in self.tables:
            self.tables.append(name)

    def note_record(self, topic: str) -> None:
        """Count a record of a publish task."""
        self.rows += 1
        if topic not in self.tables:
            self.tables.append(topic)

    def has_shown(self, count: int) -> bool:
        return 0 < count <= self.rows + self.statements

    def set_place(self, place: "TrialPlace") -> None:
        """Where a process that replaces this one continues."""
        self.file, self.pos, self.position = place.file, place.pos, place.position
        self.server, self.seq = place.server, place.seq
        self.open = astuple(place.open) if place.open else None

    def replace_process(self, password: str) -> None:
        """Continue in a process with machine code."""
        from millrace.cli.trial.address import PASSWORD_VARIABLE

        environment = {
            name: value for name, value in os.environ.items() if name != machine_code.INTERPRETED
        }
        state = json.dumps(asdict(replace(self, address=None)))
        environment |= {CONTINUES: state, PASSWORD_VARIABLE: password}
        sys.stdout.flush()
        with held_interrupts():
            os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], environment)

    def end(self) -> int:
        """Show the counts, and the documents of a task, once; the exit code. Nothing before the member is chosen."""
        if not self.file or self.address is None:
            return INTERRUPTED
        if self.is_ended:
            return 0
        self.is_ended = True
        from millrace.cli.trial.address import documents
        from millrace.schemas.gtid import without_numbers

        rows, statements = counted(self.rows, "row"), counted(self.statements, "statement")
        tables = counted(len(self.tables), "table")
        _say(f"\n{rows} of {tables}, {statements}. Documents to capture what follows:\n")
        position = without_numbers(self.position)
        _say(documents(self.address, position))
        if position != self.position:
            _say("The server has no GTIDs: turn them on, and then begin after its `gtid_executed`.")
        return 0


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _look(address: "ServerAddress", look: Look, request: Request) -> None:
    with raising_at_interrupt():  # the terminal shows again what is typed
        password = address.ask_password()
    with _opened(address, password, look, request.after) as trial, _sending(request) as send:
        if not look.file:
            _introduce(trial)
        look.set_place(trial.place)
        with noted_interrupts() as is_interrupted:
            rows = batches(
                trial,
                look,
                password,
                is_for_good=bool(request.as_format),
                is_interrupted=is_interrupted,
            )
            if request.as_format:
                _show_records(rows, look, request, send)
            else:
                _show_rows(rows, look, request, send)


Send: TypeAlias = "Callable[[Sequence[tuple[bytes | None, bytes | None]]], None]"


@contextmanager
def _sending(request: Request) -> "Iterator[Send]":
    """Sends records to the topic, if one is wanted."""
    if not request.to_kafka:
        yield lambda _: None
        return
    from millrace.cli.trial.topic import opened_topic

    with opened_topic(request.to_kafka, request.topic) as send:
        yield send


def _show_rows(batches: "Iterator[RawRecords]", look: Look, request: Request, send: Send) -> None:
    """Rows and statements as lines or JSON objects."""
    from millrace.cli.trial.terminal import Lines, has_colors
    from millrace.consumer.topic.tail import plain_record
    from millrace.schemas.record.control import DdlRecord
    from millrace.schemas.record.record import KnownSchemas, RowRecord, decode_record

    lines, known = Lines(has_colors()), KnownSchemas()
    for batch in batches:
        shown = []
        for key, value in batch:
            record = decode_record(key, value, known)
            if not isinstance(record, RowRecord | DdlRecord):
                continue
            look.note(record)
            plain = ""
            if request.as_json or request.to_kafka:
                plain = json.dumps(plain_record(record), ensure_ascii=False)
            print(plain if request.as_json else lines.line(record), flush=True)
            shown.append((None, plain.encode()))
            if look.has_shown(request.count):
                break
        send(shown)
        if look.has_shown(request.count):
            return


def _show_records(
    batches: "Iterator[RawRecords]", look: Look, request: Request, send: Send
) -> None:
    """Records of a publish task as JSON objects."""
    from millrace.cli.trial.formats import Sent, publish
    from millrace.schemas.view.format_options import FormatName

    def show(records: "Iterator[Sent]") -> bool:
        shown = []
        for record in records:
            look.note_record(record.topic)
            print(record.line(), flush=True)
            shown.append((record.key, record.value))
            if look.has_shown(request.count):
                break
        send(shown)
        return not look.has_shown(request.count)

    publish(batches, FormatName(request.as_format), show)


@contextmanager
def _opened(address: "ServerAddress", password: str, look: Look, after: str) -> "Iterator[Trial]":
    """The best member. Without a mode in the URL, a server on this machine may be without TLS."""
    from millrace.producer.source.connection import Login
    from millrace.producer.trial.trial import Trial, TrialOrder, TrialPlace
    from millrace.schemas.documents import TableFilter, Tls, TlsMode
    from millrace.schemas.progress import OpenTransaction

    tables = TableFilter(include=(address.tables,))
    place = None
    if look.file:
        open_ = OpenTransaction(*look.open) if look.open else None
        place = TrialPlace(look.file, look.pos, look.position, look.server, look.seq, open_)

    def order(tls: Tls) -> TrialOrder:
        login = Login(user=address.user, password=password, tls=tls)
        return TrialOrder(address.members, login, tables, after, place)

    with ExitStack() as stack:
        tls = address.tls or Tls(TlsMode.REQUIRE_UNVERIFIED)
        try:
            trial = stack.enter_context(Trial.open(order(tls)))
        except MillraceError as error:
            is_open = address.tls is None and address.is_loopback
            if error.code != _NO_TLS or not is_open:
                raise
            trial = stack.enter_context(Trial.open(order(Tls(TlsMode.DISABLED))))
        yield trial


def _introduce(trial: "Trial") -> None:
    """Say which member is read and why, and what a capture task would need."""
    from millrace.drivers.mysql.preflight import PERSIST

    chosen = trial.choice.member
    for verdict in sorted(trial.choice.verdicts, key=lambda each: each.member != chosen):
        if verdict.member == chosen:
            _say(f"reads {verdict}")
        else:
            why = ", and another is better" if verdict.is_admissible else ""
            _say(f"does not read {verdict}{why}")
    for finding in trial.findings:
        _say(f"a capture task would stop: {finding}\n  {finding.fix.removesuffix(PERSIST)}")
    _say(f"from {trial.place.file}:{trial.place.pos} on, as it commits; Ctrl-C ends it\n")


def batches(
    trial: "Trial",
    look: Look,
    password: str,
    *,
    is_for_good: bool,
    is_interrupted: Callable[[], bool],
) -> "Iterator[RawRecords]":
    """The records of a set topic as they come.

    In a quiet moment or after a full batch, a process with machine code takes over, unless this one is always
    interpreted.
    """
    guessed, noted = 0, 0
    can_be_replaced = machine_code.INTERPRETED in os.environ and not is_for_good
    for batch in trial.batches():
        if is_interrupted():
            raise KeyboardInterrupt
        for name in trial.guessed[guessed:]:
            guessed += 1
            _say(
                f"{name}: names, labels and signs of columns are those of now; older rows may be wrong"
            )
        for line in trial.notes[noted:]:
            noted += 1
            _say(line)
        look.set_place(trial.place)
        if not batch and is_output_closed():
            raise OutputClosed
        yield batch
        is_due = can_be_replaced and (not batch or trial.is_behind)
        if is_due and trial.can_continue and machine_code.is_compiled():
            look.replace_process(password)
