"""One connection: login, then commands until the client leaves, or a dump until its end.

Guarantees: any other command, and any statement that ``statements`` does not know, gets an error packet. A client whose
login is not over after ``LOGIN_S``, or that does not read what it is sent, is disconnected. A client that has not
logged in takes no place of the others.
"""

import threading
import time
from enum import IntEnum

from millrace.errors import MillraceError
from millrace.log import get_logger
from millrace.producer.serve.answers import Answers, ClientState, explain
from millrace.producer.serve.catalogue import Catalogue
from millrace.producer.serve.clients import Clients
from millrace.producer.serve.dump import Dump
from millrace.producer.serve.login import Door, log_in
from millrace.producer.serve.requests import (
    DumpRequest,
    check_capability,
    parse_dump,
    parse_gtid_dump,
    parse_registration,
)
from millrace.producer.serve.variables import source_server_id
from millrace.producer.serve.wire import (
    Disconnected,
    Refusal,
    Wire,
    eof_packet,
    error_packet,
    ok_packet,
    result_packets,
)

COMMAND_BYTES_MAX = 64 << 20  # a GTID set of millions of intervals
LOGIN_S = 10.0  # all of it
IDLE_S = 28_800.0  # as wait_timeout
WRITE_S = 60.0  # as net_write_timeout


class Command(IntEnum):
    """The commands that are known."""

    QUIT = 1
    INIT_DB = 2
    QUERY = 3
    STATISTICS = 9
    PING = 14
    DUMP = 18
    REGISTER = 21
    SET_OPTION = 27
    DUMP_GTID = 30
    RESET = 31


log = get_logger("producer.serve")


class Session:
    """``run`` is called once, in the connection's thread."""

    def __init__(
        self, wire: Wire, catalogue: Catalogue, door: Door, clients: Clients, *, peer: str
    ) -> None:
        self._wire = wire
        self._catalogue = catalogue
        self._door = door
        self._clients = clients
        self._peer = peer

    def run(self, stop: threading.Event) -> None:
        """Serve the client until it leaves."""
        try:
            with self._clients.arriving(self._wire.socket) as thread:
                self._wire.until_s = time.monotonic() + LOGIN_S
                user = log_in(self._wire, self._door, thread=thread, peer=self._peer)
            with self._clients.connected(thread):
                self._wire.until_s = 0.0
                self._wire.socket.settimeout(IDLE_S)
                self._wire.write(ok_packet())
                port = self._wire.socket.getsockname()[1]
                self._serve(ClientState(user, self._peer, thread, port), stop)
        except Disconnected as error:
            log.info("client left", peer=self._peer, why=str(error))
        except Refusal as refusal:
            log.warning("client refused", peer=self._peer, why=refusal.text)
            self._say(refusal)
        except MillraceError as error:
            log.error("client not served", peer=self._peer, error=error)
            self._say(explain(error))

    def _say(self, refusal: Refusal) -> None:
        try:
            self._wire.write(error_packet(refusal))
        except Disconnected:
            return

    def _serve(self, state: ClientState, stop: threading.Event) -> None:
        answers = Answers(self._catalogue, state, self._clients.registered)
        while not stop.is_set():
            payload = self._wire.read(bytes_max=COMMAND_BYTES_MAX)
            if not payload or payload[0] == Command.QUIT:
                return
            try:
                self._answer(payload[0], payload[1:], state, answers, stop)
            except Refusal as refusal:
                self._wire.write(error_packet(refusal))
                if payload[0] in (Command.DUMP, Command.DUMP_GTID):
                    log.warning("dump refused", peer=self._peer, why=refusal.text)
            except FileNotFoundError:
                gone = Refusal(1105, "HY000", "the file was purged from the relay log")
                self._wire.write(error_packet(gone))
            except MillraceError as error:
                self._wire.write(error_packet(explain(error)))

    def _answer(
        self, command: int, body: bytes, state: ClientState, answers: Answers, stop: threading.Event
    ) -> None:
        match command:
            case Command.QUERY:
                sql = body.decode(errors="replace")
                log.debug("statement", peer=self._peer, sql=sql)
                result = answers.answer(sql)
                packets = [ok_packet()] if result is None else result_packets(*result)
                self._wire.write(*packets)
            case Command.PING:
                self._wire.write(ok_packet())
            case Command.RESET:
                state.variables.clear()
                state.session.clear()
                self._wire.write(ok_packet())
            case Command.SET_OPTION:
                self._wire.write(eof_packet())
            case Command.STATISTICS:
                self._wire.write(b"Millrace relay log")
            case Command.REGISTER:
                uuid = str(
                    state.variables.get("replica_uuid", state.variables.get("slave_uuid", ""))
                )
                self._clients.register(state.thread, parse_registration(body, uuid))
                self._wire.write(ok_packet())
            case Command.DUMP:
                request = parse_dump(body, state.variables, self._catalogue.flavour)
                self._dump(request, state, stop)
            case Command.DUMP_GTID:
                self._dump(parse_gtid_dump(body, state.variables), state, stop)
            case Command.INIT_DB:
                name = body.decode(errors="replace")
                raise Refusal(1049, "42000", f"Unknown database '{name}': a relay log has none")
            case _:
                raise Refusal(1047, "08S01", f"A relay log does not know the command {command}")

    def _dump(self, request: DumpRequest, state: ClientState, stop: threading.Event) -> None:
        check_capability(state.variables, self._catalogue.flavour)
        self._wire.socket.settimeout(WRITE_S)
        server_id = source_server_id(self._catalogue)
        dump = Dump(self._wire, self._catalogue, request, server_id=server_id)
        started = {"peer": self._peer, "server_id": request.server_id, "uuid": request.uuid}
        wanted = f"{request.file}:{request.pos}" if request.done is None else str(request.done)
        log.info("dump started", **started, wanted=wanted)
        try:
            with self._clients.dumping(request.identity, dump):
                dump.run(stop)
        finally:
            log.info("dump ended", **started, sent=dump.sent_bytes, at=dump.place())
        self._wire.socket.settimeout(IDLE_S)
