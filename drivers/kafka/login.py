"""The login of a client on an open connection to a broker: SASL PLAIN, SCRAM and OAUTHBEARER.

    17 SaslHandshake v1      mechanism                → error, the listener's mechanisms
    36 SaslAuthenticate v0   bytes of the mechanism   → error, message, bytes

Each answer of the broker to a bad login is an error with a code: MR-7001, MR-7006. A broker without the password can
not complete SCRAM: its signature is checked (RFC 5802).
"""

import base64
import hashlib
import hmac
import secrets
import struct
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass
from typing import Any

from millrace.errors import Retryable

Ask = Callable[[int, int, bytes], bytes]  # (api, version, body) → body of the answer

_HANDSHAKE, _AUTHENTICATE = 17, 36
_UNSUPPORTED_MECHANISM, _NO_LOGIN_HERE = 33, 34  # 34: the listener has no SASL
_HASHES = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
_SCRAM_ROUNDS_MAX = 1 << 20  # a broker asks for 4,096 to 16,384


@dataclass(frozen=True, slots=True)
class Offer:
    """A listener asks for nothing, or for a login with one of these mechanisms."""

    needs_login: bool
    mechanisms: tuple[str, ...]


def ask_for_offer(ask: Ask, mechanism: str) -> Offer:
    """Propose a mechanism. The listener's answer ends the connection unless it accepts."""
    answer = ask(_HANDSHAKE, 1, string(mechanism))
    error, count = struct.unpack_from(">hi", answer)
    at, names = 6, []
    for _ in range(count):
        (size,) = struct.unpack_from(">h", answer, at)
        names.append(answer[at + 2 : at + 2 + size].decode())
        at += 2 + size
    if error not in (0, _UNSUPPORTED_MECHANISM, _NO_LOGIN_HERE):
        raise ValueError(f"error {error} after SaslHandshake")
    return Offer(error != _NO_LOGIN_HERE, tuple(names))


def log_in(ask: Ask, settings: Mapping[str, Any], place: str) -> None:
    """Log in as librdkafka's settings say. Retryable MR-7001, MR-7006."""
    mechanism = str(settings.get("sasl.mechanism") or settings.get("sasl.mechanisms", ""))
    is_wanted = str(settings.get("security.protocol", "")).lower().startswith("sasl")
    offer = ask_for_offer(ask, mechanism if is_wanted else "PLAIN")
    names = ", ".join(offer.mechanisms)
    if is_wanted and not offer.needs_login:
        raise Retryable("MR-7006", f"{place} takes no login, but `sasl` is given")
    if not is_wanted and offer.needs_login:
        raise Retryable("MR-7006", f"{place} requires a login by {names}, but `sasl` is missing")
    if not is_wanted:
        return
    if mechanism not in offer.mechanisms:
        raise Retryable("MR-7006", f"{place} offers no login by {mechanism}, only by {names}")
    dialogue = _dialogue(mechanism, settings)
    message = next(dialogue)
    while True:
        answer = _authenticate(ask, message, place)
        try:
            message = dialogue.send(answer)
        except StopIteration:
            return
        except ValueError as wrong:
            raise Retryable("MR-7001", f"{place} does not know the password: {wrong}") from wrong


Dialogue = Generator[bytes, bytes, None]


def _dialogue(mechanism: str, settings: Mapping[str, Any]) -> Dialogue:
    """Yields what the client sends, and is sent what the broker answers."""
    user, password = (str(settings.get(f"sasl.{name}", "")) for name in ("username", "password"))
    if mechanism == "PLAIN":
        return _one_message(f"\0{user}\0{password}".encode())
    if mechanism in _HASHES:
        return scram(_HASHES[mechanism], user, password, nonce=secrets.token_urlsafe(18))
    token, _ = settings["oauth_cb"]("")
    return _one_message(f"n,,\x01auth=Bearer {token}\x01\x01".encode())


def _one_message(message: bytes) -> Dialogue:
    yield message


def scram(hash_name: str, user: str, password: str, *, nonce: str) -> Dialogue:
    """RFC 5802. ValueError for an answer of a broker that does not know the password."""

    def digest(key: bytes, text: bytes) -> bytes:
        return hmac.digest(key, text, hash_name)

    first = f"n={user.replace('=', '=3D').replace(',', '=2C')},r={nonce}"
    server_first = (yield b"n,," + first.encode()).decode()
    attributes = _attributes(server_first)
    rounds = int(attributes["i"])
    if not attributes["r"].startswith(nonce) or not 0 < rounds <= _SCRAM_ROUNDS_MAX:
        raise ValueError("an answer of another dialogue")
    salted = hashlib.pbkdf2_hmac(
        hash_name, password.encode(), base64.b64decode(attributes["s"]), rounds
    )
    final = f"c=biws,r={attributes['r']}"
    signed = ",".join((first, server_first, final)).encode()
    key = digest(salted, b"Client Key")
    signature = digest(hashlib.new(hash_name, key).digest(), signed)
    proof = bytes(a ^ b for a, b in zip(key, signature, strict=True))
    server_final = (yield f"{final},p={base64.b64encode(proof).decode()}".encode()).decode()
    expected = digest(digest(salted, b"Server Key"), signed)
    if not hmac.compare_digest(base64.b64decode(_attributes(server_final)["v"]), expected):
        raise ValueError("its signature is wrong")


def _attributes(text: str) -> dict[str, str]:
    """``a=1,b=2`` as a mapping; a missing one is a ValueError for callers, too."""
    attributes = dict(part.partition("=")[::2] for part in text.split(","))
    if "e" in attributes:
        raise ValueError(attributes["e"])
    return {"i": "0", "r": "", "s": "", "v": ""} | attributes


def _authenticate(ask: Ask, message: bytes, place: str) -> bytes:
    answer = ask(_AUTHENTICATE, 0, struct.pack(">i", len(message)) + message)
    error, size = struct.unpack_from(">hh", answer)
    text = answer[4 : 4 + max(size, 0)].decode(errors="replace")
    if error:
        raise Retryable("MR-7001", f"{place} refused the login: {text or f'error {error}'}")
    at = 4 + max(size, 0)
    (size,) = struct.unpack_from(">i", answer, at)
    content = answer[at + 4 : at + 4 + max(size, 0)]
    if content.startswith(b"{"):  # OAUTHBEARER: the reason of a refusal as JSON
        raise Retryable("MR-7001", f"{place} refused the token: {content.decode(errors='replace')}")
    return content


def string(text: str) -> bytes:
    """Kafka's string: a length of 2 bytes, and UTF-8."""
    encoded = text.encode()
    return struct.pack(">h", len(encoded)) + encoded
