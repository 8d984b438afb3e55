"""An issuer of JSON Web Tokens for OAUTHBEARER: an RSA key of ``openssl``, and its public half as a key set (JWKS)."""

import base64
import json
import subprocess
import time
from pathlib import Path

_KEY_ID = "test"


class TokenIssuer:
    """Signs tokens with RS256. Brokers verify them with the file ``jwks``."""

    def __init__(self, folder: Path) -> None:
        self._key = folder / "issuer.pem"
        self.jwks = folder / "jwks.json"
        _openssl("genrsa", "-out", str(self._key), "2048")
        modulus = _openssl("rsa", "-in", str(self._key), "-noout", "-modulus").decode()
        number = bytes.fromhex(modulus.strip().partition("=")[2])
        key = {"kty": "RSA", "kid": _KEY_ID, "alg": "RS256", "use": "sig"}
        key |= {"n": _encoded(number), "e": _encoded(b"\1\0\1")}
        self.jwks.write_text(json.dumps({"keys": [key]}))

    def token(self, user: str, *, life_s: int = 3600) -> str:
        """A token for this user."""
        now_s = int(time.time())
        claims = {"sub": user, "iat": now_s - 60, "exp": now_s + life_s, "scope": "kafka"}
        header = {"alg": "RS256", "kid": _KEY_ID}
        parts = [_encoded(json.dumps(plain).encode()) for plain in (header, claims)]
        signed = ".".join(parts)
        signature = _openssl("dgst", "-sha256", "-sign", str(self._key), stdin=signed.encode())
        return f"{signed}.{_encoded(signature)}"


def _openssl(*command: str, stdin: bytes = b"") -> bytes:
    done = subprocess.run(("openssl", *command), input=stdin, capture_output=True, check=True)
    return done.stdout


def _encoded(octets: bytes) -> str:
    return base64.urlsafe_b64encode(octets).decode().rstrip("=")
