"""The login of a client: greeting, TLS, and a password that is never sent.

    greeting   10 | version 0 | 4 thread | 8 scramble 0 | 2 capabilities | charset | 2 status | 2 capabilities | 21
               | 10 zeros | 12 scramble 0 | plugin 0
    TLS        4 capabilities | 4 packet bytes | charset | 23; then the TLS handshake
    response   the same 32 bytes | user 0 | scrambled password | database 0 | plugin 0 | attributes
    switch     0xFE | plugin 0 | 20 scramble 0            the client answers with the password scrambled for that plugin

    mysql_native_password   SHA1(p) ^ SHA1(scramble . SHA1(SHA1(p)))                 MariaDB's clients and servers
    caching_sha2_password   SHA256(p) ^ SHA256(SHA256(SHA256(p)) . scramble)         MySQL's; then 0x01 0x03 and OK

The server knows the password, so the short form of caching_sha2_password always suffices, with or without TLS.

Guarantees: with a certificate, no client logs in without TLS. Passwords are compared in constant time. Account and
password fail with the same error. Not done here: any other plugin.
"""

import hmac
import secrets
import ssl
import struct
from dataclasses import dataclass, field
from hashlib import sha1, sha256

from millrace.producer.serve.wire import (
    AUTOCOMMIT,
    Disconnected,
    Refusal,
    Wire,
    take_packed_number,
)
from millrace.schemas.documents.secret import AskedSecret, SecretReference
from millrace.schemas.gtid import Flavour

NATIVE, SHA2 = "mysql_native_password", "caching_sha2_password"
PLUGINS = (NATIVE, SHA2)
SCRAMBLE_BYTES = 20
RESPONSE_BYTES_MAX = 64 << 10  # connection attributes are limited to this

_LONG_PASSWORD, _CONNECT_WITH_DB, _PROTOCOL_41, _SSL = 1, 8, 0x200, 0x800
_TRANSACTIONS, _SECURE, _PLUGIN_AUTH = 0x2000, 0x8000, 0x80000
_CONNECT_ATTRS, _PACKED_AUTH = 0x100000, 0x200000
_OFFERED = (
    _LONG_PASSWORD | 2 | 4 | _CONNECT_WITH_DB | _PROTOCOL_41 | _TRANSACTIONS | _SECURE
    | _PLUGIN_AUTH | _CONNECT_ATTRS | _PACKED_AUTH
)  # fmt: skip
_UTF8MB4 = 255
_FAST_SUCCESS = b"\x01\x03"


@dataclass(frozen=True, slots=True)
class ServedAccount:
    """The only account. ``password`` None: any password of this user is accepted."""

    user: str
    password: SecretReference | None


@dataclass(frozen=True, slots=True)
class Door:
    """The contents of a greeting."""

    flavour: Flavour
    version: str
    user: str
    secret: AskedSecret | None
    tls: ssl.SSLContext | None = field(repr=False, default=None)


@dataclass(frozen=True, slots=True)
class _Response:
    user: str
    proof: bytes
    plugin: str


def log_in(wire: Wire, door: Door, *, thread: int, peer: str) -> str:
    """Greet a client and return its user. The OK that ends a login is the caller's.

    Disconnected; Refusal if it may not log in; errors of the secret.
    """
    scramble = new_scramble()
    plugin = SHA2 if door.flavour is Flavour.MYSQL else NATIVE
    wire.write(_greeting(door, thread, scramble, plugin))
    payload = wire.read(bytes_max=RESPONSE_BYTES_MAX)
    if door.tls is not None:
        if not _capabilities(payload) & _SSL:
            text = "Connections using insecure transport are prohibited: use TLS."
            raise Refusal(3159, "HY000", text)
        wire.socket = _with_tls(wire, door.tls)
        payload = wire.read(bytes_max=RESPONSE_BYTES_MAX)
    response = _parse_response(payload)
    proof, used = response.proof, plugin
    if response.plugin != plugin:
        used = response.plugin if response.plugin in PLUGINS else plugin
        wire.write(b"\xfe" + used.encode() + b"\0" + scramble + b"\0")
        proof = wire.read(bytes_max=RESPONSE_BYTES_MAX)
    proof = b"" if proof == b"\0" else proof  # an empty password
    if not _is_allowed(door, response.user, proof, scramble, used):
        using = "YES" if proof else "NO"
        text = f"Access denied for user '{response.user}'@'{peer}' (using password: {using})"
        raise Refusal(1045, "28000", text)
    if used == SHA2 and proof:
        wire.write(_FAST_SUCCESS)
    return response.user


def new_scramble() -> bytes:
    """Random bytes without zero, which ends the scramble in a greeting."""
    return bytes(33 + secrets.randbelow(94) for _ in range(SCRAMBLE_BYTES))


def scrambled(password: bytes, scramble: bytes, plugin: str) -> bytes:
    """The proof that a client sends; empty for an empty password."""
    if not password:
        return b""
    if plugin == NATIVE:
        once = sha1(password, usedforsecurity=False).digest()
        twice = sha1(once, usedforsecurity=False).digest()
        mask = sha1(scramble + twice, usedforsecurity=False).digest()
    else:
        once = sha256(password).digest()
        mask = sha256(sha256(once).digest() + scramble).digest()
    return bytes(a ^ b for a, b in zip(once, mask, strict=True))


def _is_allowed(door: Door, user: str, proof: bytes, scramble: bytes, plugin: str) -> bool:
    is_user = hmac.compare_digest(user.encode(), door.user.encode())
    if door.secret is None:
        return is_user
    password = door.secret.value().encode()
    return hmac.compare_digest(proof, scrambled(password, scramble, plugin)) and is_user


def _with_tls(wire: Wire, context: ssl.SSLContext) -> ssl.SSLSocket:
    wire.keep_deadline()
    try:
        return context.wrap_socket(wire.socket, server_side=True)
    except OSError as error:
        raise Disconnected(f"TLS: {error}") from error


def _greeting(door: Door, thread: int, scramble: bytes, plugin: str) -> bytes:
    offered = _OFFERED | (_SSL if door.tls is not None else 0)
    return (
        b"\x0a" + door.version.encode() + b"\0" + struct.pack("<I", thread) + scramble[:8] + b"\0"
        + struct.pack("<HBHHB", offered & 0xFFFF, _UTF8MB4, AUTOCOMMIT, offered >> 16, 21)
        + bytes(10) + scramble[8:] + b"\0" + plugin.encode() + b"\0"
    )  # fmt: skip


def _capabilities(payload: bytes) -> int:
    if len(payload) < 32:
        raise Disconnected("a malformed login")
    return int.from_bytes(payload[:4], "little")


def _parse_response(payload: bytes) -> _Response:
    flags = _capabilities(payload)
    if not flags & _PROTOCOL_41:
        raise Disconnected("the client is older than MySQL 4.1")
    user, at = _text(payload, 32)
    if flags & _PACKED_AUTH:
        length, at = take_packed_number(payload, at)
    elif flags & _SECURE:
        length, at = payload[at] if at < len(payload) else 0, at + 1
    else:
        length = len(_text(payload, at)[0])
    proof, at = payload[at : at + length], at + length
    if flags & _CONNECT_WITH_DB:
        _, at = _text(payload, at)
    plugin = _text(payload, at)[0] if flags & _PLUGIN_AUTH and at < len(payload) else b""
    return _Response(user.decode(errors="replace"), proof, plugin.decode(errors="replace"))


def _text(payload: bytes, at: int) -> tuple[bytes, int]:
    end = payload.find(b"\0", at)
    end = len(payload) if end < 0 else end
    return payload[at:end], end + 1
