"""TLS connections to ZooKeeper, and why a server refuses one.

kazoo can make TLS connections. It trusts the system's CAs besides the given one, does not check host names unless
asked, and reports every failure as a timeout. So Millrace makes the connections. ``refusal`` finds the reason
afterwards, over a separate connection: some servers refuse only after the handshake, when kazoo reads.
"""

import socket
import ssl
import struct
from collections.abc import Sequence

from millrace.errors import Fatal
from millrace.process.shortage import shortage_of
from millrace.tls import (
    CertificateProblem,
    UnusableAuthorityError,
    certificate_problem,
    unverified,
    verifying,
)
from millrace.zk.client.access import TlsAccess

PROBE_S_MAX = 2.0  # of one server; a server that needs longer is slow and not misconfigured

# A ConnectRequest for a new session of the shortest time, with its length before it: protocol version, last zxid,
# session timeout, session id, password, read-only
_CONNECT = struct.pack(">iqiq", 0, 0, 0, 0) + struct.pack(">i16s?", 16, bytes(16), False)
_GREETING = struct.pack(">i", len(_CONNECT)) + _CONNECT

_CERTIFICATE_CODES = {
    CertificateProblem.SELF_SIGNED: "MR-7021",
    CertificateProblem.UNTRUSTED: "MR-7021",
    CertificateProblem.OUTDATED: "MR-7022",
    CertificateProblem.OTHER_NAME: "MR-7023",
}


def context_of(tls: TlsAccess) -> ssl.SSLContext:
    """The client's context. The files are read again for each connection, so that renewed certificates are used.

    Fatal MR-7027 when a file can't be used; an OSError that may be temporary.
    """
    try:
        context = verifying(tls.ca_path, checks_name=tls.checks_name)
    except UnusableAuthorityError as error:
        raise Fatal("MR-7027", f"MILLRACE_ZOOKEEPER_TLS_CA: {error}") from error
    if tls.certificate_path:
        try:
            # with a password, OpenSSL does not ask for one on the terminal
            context.load_cert_chain(tls.certificate_path, tls.key_path, password="")
        except (OSError, ValueError) as error:
            if not isinstance(error, ssl.SSLError) and shortage_of(error):
                raise
            files = f"{tls.certificate_path} with the key {tls.key_path}"
            why = getattr(error, "strerror", None) or getattr(error, "reason", None) or error
            raise Fatal("MR-7027", f"the client certificate {files} can't be used: {why}") from None
    return context


def check_files(tls: TlsAccess) -> None:
    """Fatal MR-7027 when a file can't be used, Retryable MR-4014 when the machine has run out of a resource."""
    try:
        context_of(tls)
    except OSError as error:
        raise shortage_of(error) or Fatal(
            "MR-7027", f"{error.filename}: {error.strerror}"
        ) from error


def connect(
    address: tuple[str, int], *, name: str, timeout_s: float, tls: TlsAccess
) -> ssl.SSLSocket:
    """A TLS connection to one server. Raises only OSError, which kazoo answers with another attempt."""
    try:
        context = context_of(tls)
    except Fatal as error:
        raise ConnectionError(error.message) from error
    plain = socket.create_connection(address, timeout_s)
    try:
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return context.wrap_socket(plain, server_hostname=name)
    except BaseException:
        plain.close()
        raise


def refusal(
    servers: Sequence[tuple[str, int]], tls: TlsAccess | None, *, within_s: float
) -> Fatal | None:
    """Why no server accepts connections, if that is a matter of TLS; ``None`` while one may accept them later."""
    probe_s = min(PROBE_S_MAX, within_s / len(servers))
    if probe_s <= 0:
        return None
    found = [_refusal_of(host.strip("[]"), port, tls, probe_s) for host, port in servers]
    refused = [answer for answer in found if isinstance(answer, Fatal)]
    return refused[0] if refused and not any(answer is True for answer in found) else None


def _refusal_of(host: str, port: int, tls: TlsAccess | None, timeout_s: float) -> Fatal | bool:
    """The reason; True when the server would accept the connection, False when it does not answer."""
    try:
        plain = socket.create_connection((host, port), timeout_s)
    except OSError:
        return False
    with plain:
        return _plain_answer(plain, host, port) if tls is None else _answer(plain, host, port, tls)


def _plain_answer(plain: socket.socket, host: str, port: int) -> Fatal | bool:
    try:
        with unverified().wrap_socket(plain):
            return Fatal("MR-7025", f"{host}:{port} answers with TLS")
    except TimeoutError:
        return False
    except OSError:
        return True  # it does not speak TLS, as expected


def _answer(plain: socket.socket, host: str, port: int, tls: TlsAccess) -> Fatal | bool:
    server, is_encrypted = f"{host}:{port}", False
    try:
        with context_of(tls).wrap_socket(plain, server_hostname=host) as connection:
            is_encrypted = True
            connection.sendall(_GREETING)
            connection.recv(len(_GREETING))
    except TimeoutError:
        return False
    except OSError as error:
        return refusal_of(error, server, is_encrypted=is_encrypted) or False
    return True


def refusal_of(error: OSError, server: str, *, is_encrypted: bool = False) -> Fatal | None:
    """The reason of a failed TLS connection, if it is one of TLS; ``None`` if the server may only be away.

    ``is_encrypted``: the handshake had succeeded.
    """
    if isinstance(error, ssl.SSLCertVerificationError):
        problem = certificate_problem(error)
        what = f"the certificate of {server} is refused: {problem.value} ({error.verify_message})"
        return Fatal(_CERTIFICATE_CODES[problem], what)
    reason = str(getattr(error, "reason", None) or error.strerror or type(error).__name__)
    if "CERT" in reason or "UNKNOWN_CA" in reason:  # an alert of the server
        return Fatal("MR-7026", f"{server} refuses the client certificate: {reason}")
    if is_encrypted or not isinstance(error, ssl.SSLError | ConnectionResetError):
        return None
    return Fatal("MR-7024", f"{server} does not answer with TLS: {reason}")
