"""A connection to one broker without librdkafka, with the TLS and the login that librdkafka's settings ask for.

librdkafka reports a refused login, a certificate that is not trusted and a listener of another protocol as silence, or
with a text that names no cause. ``find_refusal`` asks the brokers itself after such an error and finds the cause:

    Retryable MR-7001   the login is refused                   MR-7004   TLS on one side only
    Retryable MR-7002   the certificate is not trusted         MR-7005   the client's certificate is refused
    Retryable MR-7003   the certificate is for another name    MR-7006   the listener wants another login, or none
    Fatal MR-7007       a TLS file can't be used
    Fatal MR-3023       the broker has no transactions (``needs_transactions``)

A broker answers 18 ApiVersions v0 with the requests that it knows: error, [api, first version, last version].
librdkafka reports a missing InitProducerId or EndTxn with an error, but a missing AddPartitionsToTxn as silence.

    int32 size | int16 api | int16 version | int32 correlation | int16 size, client | body
"""

import os
import socket
import ssl
import struct
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

from millrace.drivers.kafka.access import KafkaAccess
from millrace.drivers.kafka.login import ask_for_offer, log_in
from millrace.errors import Fatal, MillraceError, Retryable
from millrace.tls import (
    CertificateProblem,
    UnusableAuthorityError,
    certificate_problem,
    unverified,
    verifying,
)

ANSWER_TIMEOUT_S = 3.0
_ADDRESSES_MAX = 5  # asked in turn
_ANSWER_BYTES_MAX = 1 << 20
_CLIENT = b"millrace"


_API_VERSIONS = 18
_TRANSACTIONS = {
    10: "FindCoordinator",
    22: "InitProducerId",
    24: "AddPartitionsToTxn",
    26: "EndTxn",
}
_SILENT = (TimeoutError, ConnectionRefusedError, socket.gaierror)
_EVENT_HUBS = ".servicebus.windows.net"


def find_refusal(brokers: KafkaAccess, *, needs_transactions: bool = False) -> MillraceError | None:
    """The error of a broker that refuses this client; None if none does, or none can be reached. At most 15 s."""
    settings = brokers.settings()
    for host, port in list(addresses(brokers))[:_ADDRESSES_MAX]:
        try:
            try:
                with suppress(ValueError, struct.error):
                    connect(settings, host, port).close()
            except _SILENT:
                continue
            except OSError:
                pass  # such as a reset connection, after a request that the broker does not know
            if needs_transactions and (missing := _missing(settings, host, port)):
                return _without_transactions(f"{host}:{port}", f"it does not know {missing}")
        except MillraceError as refusal:
            return refusal
    return None


def refuse_event_hubs(brokers: KafkaAccess) -> None:
    """Fatal MR-3023 for Azure Event Hubs, whose transactions are a preview of some of its tiers."""
    for host, port in addresses(brokers):
        if host.lower().endswith(_EVENT_HUBS):
            raise _without_transactions(f"{host}:{port}", "it is Azure Event Hubs")


def require_transactions(brokers: KafkaAccess) -> None:
    """Fatal MR-3023 if they are missing; see ``find_refusal`` for its other errors. Silent brokers raise nothing."""
    refuse_event_hubs(brokers)
    if (refusal := find_refusal(brokers, needs_transactions=True)) is not None:
        raise refusal


def _missing(settings: Mapping[str, Any], host: str, port: int) -> str:
    """The requests of a transaction that the broker does not know; "" if it knows all, or does not answer.

    It answers before a login.
    """
    context = _context(settings)
    try:
        with socket.create_connection((host, port), timeout=ANSWER_TIMEOUT_S) as plain:
            connection = plain if context is None else _protected(plain, context, host, port)
            with connection:
                answer = ask(connection, _API_VERSIONS, 0, b"")
        error, count = struct.unpack_from(">hi", answer)
        versions = answer[6 : 6 + 6 * count]
        known = {api for api, _, _ in struct.iter_unpack(">hhh", versions)}
    except (OSError, ValueError, struct.error):
        return ""
    if error or not known:
        return ""
    return ", ".join(name for api, name in _TRANSACTIONS.items() if api not in known)


def _without_transactions(place: str, why: str) -> Fatal:
    return Fatal("MR-3023", f"{place} has no Kafka transactions: {why}")


def addresses(brokers: KafkaAccess) -> Iterator[tuple[str, int]]:
    """Host and port of each bootstrap address."""
    for address in brokers.bootstrap.split(","):
        host, _, port = address.strip().rpartition(":")
        if port.isascii() and port.isdigit():
            yield host.strip("[]"), int(port)


def connect(settings: Mapping[str, Any], host: str, port: int) -> socket.socket:
    """A connection that is logged in. OSError if there is no broker; see the module for its refusals."""
    place = f"{host}:{port}"
    context = _context(settings)
    plain = socket.create_connection((host, port), timeout=ANSWER_TIMEOUT_S)
    with _closed_on_error(plain):
        if context is None:
            _log_in_plainly(plain, settings, host, port)
            return plain
        protected = _protected(plain, context, host, port)
    with _closed_on_error(protected):
        try:
            log_in(lambda *request: ask(protected, *request), settings, place)
        except ssl.SSLError as refused:  # TLS 1.3 reports it with the first answer
            raise Retryable("MR-7005", f"{place}: {_reason(refused)}") from refused
        return protected


@contextmanager
def _closed_on_error(connection: socket.socket) -> Iterator[None]:
    try:
        yield
    except BaseException:
        connection.close()
        raise


def _log_in_plainly(
    plain: socket.socket, settings: Mapping[str, Any], host: str, port: int
) -> None:
    try:
        log_in(lambda *request: ask(plain, *request), settings, f"{host}:{port}")
    except TimeoutError:  # of a broker that hangs, in any protocol
        raise
    except (OSError, ValueError, struct.error):
        if _speaks_tls(host, port):
            raise Retryable("MR-7004", f"{host}:{port} speaks TLS, but `tls` is disabled") from None
        raise


def _protected(
    plain: socket.socket, context: ssl.SSLContext, host: str, port: int
) -> ssl.SSLSocket:
    place = f"{host}:{port}"
    try:
        return context.wrap_socket(plain, server_hostname=host)
    except ssl.SSLCertVerificationError as error:
        why = f"{place}: {error.verify_message or error.reason}"
        if certificate_problem(error) is CertificateProblem.OTHER_NAME:
            raise Retryable("MR-7003", why) from error
        raise Retryable("MR-7002", why) from error
    except OSError as error:
        if "ALERT" in str(getattr(error, "reason", "")):
            raise Retryable("MR-7005", f"{place}: {_reason(error)}") from error
        if not isinstance(error, TimeoutError) and _speaks_plainly(host, port):
            raise Retryable("MR-7004", f"{place} does not speak TLS, but `tls` is set") from error
        raise


def _speaks_tls(host: str, port: int) -> bool:
    with suppress(OSError), socket.create_connection((host, port), ANSWER_TIMEOUT_S) as plain:
        unverified().wrap_socket(plain, server_hostname=host).close()
        return True
    return False


def _speaks_plainly(host: str, port: int) -> bool:
    with (
        suppress(OSError, ValueError, struct.error),
        socket.create_connection((host, port), ANSWER_TIMEOUT_S) as plain,
    ):
        ask_for_offer(lambda *request: ask(plain, *request), "PLAIN")
        return True
    return False


def _context(settings: Mapping[str, Any]) -> ssl.SSLContext | None:
    """None for plain text. Fatal MR-7007."""
    if "ssl" not in str(settings.get("security.protocol", "")).lower():
        return None
    algorithm = settings.get("ssl.endpoint.identification.algorithm", "https")
    ca_path = str(settings.get("ssl.ca.location", ""))
    try:
        context = verifying(ca_path, checks_name=algorithm == "https")
    except UnusableAuthorityError as error:
        raise Fatal("MR-7007", str(error)) from error
    if certificate := settings.get("ssl.certificate.location"):
        _load_own(context, str(certificate), settings)
    return context


def _load_own(context: ssl.SSLContext, certificate: str, settings: Mapping[str, Any]) -> None:
    password = str(settings.get("ssl.key.password", ""))
    key = str(settings.get("ssl.key.pem", ""))
    # OpenSSL reads a key from a file only; this one is in no folder
    descriptor = os.memfd_create("key")
    try:
        os.write(descriptor, key.encode())
        path = f"/proc/self/fd/{descriptor}" if key else settings.get("ssl.key.location")
        context.load_cert_chain(certificate, path, lambda: password)
    except OSError as error:  # an SSLError is one
        why = f"the certificate {certificate} and its key can't be used: {_reason(error)}"
        raise Fatal("MR-7007", why) from error
    finally:
        os.close(descriptor)


def _reason(error: OSError) -> str:
    return str(getattr(error, "reason", "") or error.strerror or type(error).__name__)


def ask(connection: socket.socket, api: int, version: int, body: bytes) -> bytes:
    """The body of the answer to a request whose version has no compact encoding."""
    header = struct.pack(">hhih", api, version, 0, len(_CLIENT)) + _CLIENT
    connection.sendall(struct.pack(">i", len(header) + len(body)) + header + body)
    return receive(connection)[4:]  # without the correlation ID


def receive(connection: socket.socket) -> bytes:
    """One answer, without its size. ValueError if the connection ends or the size is not one of Kafka's."""
    (size,) = struct.unpack(">i", _exactly(connection, 4))
    if not 4 <= size <= _ANSWER_BYTES_MAX:
        raise ValueError(f"an answer of {size} bytes")
    return _exactly(connection, size)


def _exactly(connection: socket.socket, count: int) -> bytes:
    octets = b""
    while len(octets) < count:
        part = connection.recv(count - len(octets))
        if not part:
            raise ValueError("the broker closed the connection")
        octets += part
    return octets
