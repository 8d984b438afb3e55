"""A certificate authority, and a server certificate for 127.0.0.1 and localhost, made once with ``openssl``.

Both flavours use them, so that clients can verify a server's identity. Without ``openssl`` each server makes its own
certificate, which clients cannot verify. MariaDB takes three seconds for that at every start.
"""

import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from deploy.servers.templates import template
from millrace.errors import Fatal

_DAYS = "3650"
_KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """PEM files: the authority, and the certificate and key of the server."""

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


def tls_files() -> TlsFiles | None:
    """The files. The first call makes them. None without ``openssl``."""
    openssl = shutil.which("openssl")
    if openssl is None:
        return None
    folder = template("tls", lambda scratch: _make(scratch, openssl))
    return TlsFiles(folder / "ca.pem", folder / "server.pem", folder / "server-key.pem")


def _make(folder: Path, openssl: str) -> None:
    authority = (
        "-keyout",
        "ca-key.pem",
        "-out",
        "ca.pem",
        "-days",
        _DAYS,
        "-subj",
        "/CN=Millrace local authority",
    )
    _run(folder, openssl, "req", "-x509", *_KEY, *authority)
    _run(
        folder,
        openssl,
        "req",
        *_KEY,
        "-keyout",
        "server-key.pem",
        "-out",
        "server.csr",
        "-subj",
        "/CN=localhost",
    )
    (folder / "names").write_text("subjectAltName=DNS:localhost,IP:127.0.0.1\n")
    signed = (
        "-CA",
        "ca.pem",
        "-CAkey",
        "ca-key.pem",
        "-CAcreateserial",
        "-extfile",
        "names",
        "-days",
        _DAYS,
    )
    _run(folder, openssl, "x509", "-req", "-in", "server.csr", "-out", "server.pem", *signed)
    (folder / "ca-key.pem").unlink()


def _run(folder: Path, *command: str) -> None:
    done = subprocess.run(command, cwd=folder, capture_output=True, check=False)
    if done.returncode != 0:
        raise Fatal(
            "MR-8004", f"openssl {command[1]} failed: {done.stderr.decode(errors='replace')[-300:]}"
        )
