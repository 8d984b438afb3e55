"""Certificates made with ``openssl``: an authority, and what it signs.

``tls_files`` is a server certificate for 127.0.0.1 and localhost, made once. Both flavours use it, so that clients can
verify a server's identity. Without ``openssl`` each server makes its own certificate, which clients cannot verify.
MariaDB takes three seconds for that at every start.
"""

import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from millrace.deploy.servers.templates import template
from millrace.errors import Fatal

_DAYS = ("-days", "3650")
_KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """PEM files: the authority, and a certificate that it has signed, with its key (PKCS #8)."""

    authority: Path
    certificate: Path
    key: Path

    def options(self) -> tuple[str, ...]:
        """The server options for these files, in either flavour."""
        return (
            f"--ssl-ca={self.authority}",
            f"--ssl-cert={self.certificate}",
            f"--ssl-key={self.key}",
        )


@dataclass(frozen=True, slots=True)
class Authority:
    """A certificate authority in a folder: ``ca.pem`` and its key. Fatal MR-8004 if ``openssl`` fails."""

    folder: Path
    openssl: str

    @classmethod
    def make(cls, folder: Path, *, openssl: str = "openssl") -> Self:
        made = cls(folder, openssl)
        out = ("-keyout", "ca-key.pem", "-out", "ca.pem", "-subj", "/CN=Millrace local authority")
        made._run("req", "-x509", *_KEY, *_DAYS, *out)
        return made

    def issue(self, name: str, *, common_name: str, alternatives: str = "") -> TlsFiles:
        """A certificate ``name``.pem and its key; ``alternatives`` are names such as DNS:localhost."""
        key, request, certificate = f"{name}-key.pem", f"{name}.csr", f"{name}.pem"
        self._run("req", *_KEY, "-keyout", key, "-out", request, "-subj", f"/CN={common_name}")
        names = self.folder / "names"
        names.write_text(f"subjectAltName={alternatives}\n" if alternatives else "\n")
        by = ("-CA", "ca.pem", "-CAkey", "ca-key.pem", "-CAcreateserial", "-extfile", "names")
        self._run("x509", "-req", "-in", request, "-out", certificate, *by, *_DAYS)
        return TlsFiles(self.folder / "ca.pem", self.folder / certificate, self.folder / key)

    def forget_key(self) -> None:
        """Remove the authority's key: nothing more can be signed."""
        (self.folder / "ca-key.pem").unlink()

    def _run(self, *command: str) -> None:
        done = subprocess.run(
            (self.openssl, *command), cwd=self.folder, capture_output=True, check=False
        )
        if done.returncode != 0:
            why = done.stderr.decode(errors="replace")[-300:]
            raise Fatal("MR-8004", f"openssl {command[0]} failed: {why}")


def openssl_program() -> str:
    """The program. Fatal MR-8002 if it is not installed."""
    found = shutil.which("openssl")
    if found is None:
        raise Fatal(
            "MR-8002",
            "openssl, which makes the certificates of a secured stack, is not in PATH",
            fix="Install it (`apt-get install openssl`), or start the stack without --secure.",
        )
    return found


def tls_files() -> TlsFiles | None:
    """The files. The first call makes them. None without ``openssl``."""
    openssl = shutil.which("openssl")
    if openssl is None:
        return None
    folder = template("tls", lambda scratch: _make(scratch, openssl))
    return TlsFiles(folder / "ca.pem", folder / "server.pem", folder / "server-key.pem")


def _make(folder: Path, openssl: str) -> None:
    authority = Authority.make(folder, openssl=openssl)
    authority.issue("server", common_name="localhost", alternatives="DNS:localhost,IP:127.0.0.1")
    authority.forget_key()
